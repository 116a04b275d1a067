"""The Java that Spark's driver runs on: found and looked at before Spark takes its time to start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

LEAST = 17
_VERSION = re.compile(r'version "(\d+)')
_SECONDS = 20


class JavaError(RuntimeError):
    """No Java that Spark 4 runs on."""


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """The program that Spark would start: JAVA_HOME's, else the PATH's.  JavaError when there is none."""
    home = environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if os.access(program, os.X_OK):
            return program
        raise JavaError(
            f"JAVA_HOME is {home}, and there is no {program}: name the directory of a Java {LEAST} or newer"
        )
    found = shutil.which("java", path=environ.get("PATH"))
    if found is None:
        raise JavaError(
            f"Spark needs Java {LEAST} or newer, and no `java` is in the PATH.  Debian: "
            "apt-get install openjdk-17-jre-headless; elsewhere set JAVA_HOME"
        )
    return Path(found)


def check_java(environ: Mapping[str, str] = os.environ) -> None:
    """JavaError when there is no Java, or one that is too old."""
    program = find_java(environ)
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{program} does not run: {error}") from None
    said = _VERSION.search(done.stderr + done.stdout)
    if done.returncode != 0:
        first = (done.stderr or done.stdout).strip().splitlines()[:1]
        raise JavaError(f"{program} does not run: {' '.join(first) or f'exit status {done.returncode}'}")
    # A release that does not say its number in the usual form is left to Spark.
    if said is not None and int(said[1]) < LEAST:
        raise JavaError(f"Spark needs Java {LEAST} or newer, and {program} is version {said[1]}: set JAVA_HOME")
