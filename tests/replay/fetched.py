"""What tests of Spark fetch on first use into `.tools`: never copied into the repository, never shipped."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

from tests.tools import missing, require_tool

TOOLS = Path(__file__).resolve().parents[2] / ".tools"


def fetched(name: str, what: str, command: list[str]) -> Path:
    """The directory `.tools/<name>`, which the command filled once; skips (in CI: fails) the test when it cannot."""
    folder = TOOLS / name
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                missing(what, f"it cannot be had: {(done.stderr or done.stdout)[-300:]}")
            (folder / "complete").touch()
    return folder


def fetched_jars(name: str, what: str, pom: Path, *options: str) -> list[str]:
    """The paths of the jars that a Maven project names, in `.tools/<name>`."""
    require_tool("java")
    require_tool("mvn")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={TOOLS / name}"]
    return sorted(str(jar) for jar in fetched(name, what, [*command, *options]).glob("*.jar"))
