"""`kbroker version` and `--version`: what a bug report needs to know of this build and its machine."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import click

import kbroker
from kbroker._fast.base import build_facts, crc32c, md5
from kbroker.cli.output import json_option, print_json
from kbroker.types import JsonObject

LIBRARIES = (
    "uvloop",
    "httptools",
    "confluent-kafka",
    "lz4",
    "zstandard",
    "python-snappy",
    "google-re2",
    "regex",
    "xxhash",
    "kazoo",
    "prometheus-client",
    "click",
    "rich",
    "pyspark",
    "pyarrow",
)
_CRC_INSTRUCTIONS = {"x86_64": "SSE 4.2", "aarch64": "ARMv8 CRC"}


def facts() -> JsonObject:
    """The build: release and commit, how it was compiled, what of this processor it uses, which libraries are there."""
    machine = platform.machine()
    return {
        "version": kbroker.__version__,
        "commit": commit(),
        "build": build_facts.MODE,
        "compiler": build_facts.COMPILER,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "architecture": machine,
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "simd": {
            "crc32c": _CRC_INSTRUCTIONS.get(machine, "yes") if crc32c.HARDWARE else "portable",
            "md5": "AVX2" if md5.WIDE else "portable",
        },
        "libraries": _libraries(),
    }


def commit() -> str | None:
    """What the package was built of: written into it by setup.py, or what git says of a clone; None: not known.

    `-dirty` behind it: files differ from that commit.
    """
    package = Path(kbroker.__file__).parent
    written = package / "commit.txt"
    if written.exists():
        return written.read_text().strip() or None
    if not (package.parent / ".git").exists():
        return None
    command = ("git", "-C", str(package.parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _libraries() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if "confluent-kafka" in found:
        import confluent_kafka

        found["librdkafka"] = confluent_kafka.libversion()[0]
    return found


def print_version(as_json: bool) -> None:
    """The facts, the release in the first line."""
    known = facts()
    if as_json:
        print_json(known)
        return
    click.echo(f"kbroker {known['version']}")
    rows = {
        "commit": known["commit"] or "not known",
        "build": f"{known['build']}, {known['compiler']}",
        "python": known["python"],
        "system": f"{known['system']}, {known['architecture']}",
        "uses": ", ".join(f"{name}: {path}" for name, path in known["simd"].items()),
        "libraries": ", ".join(f"{name} {release}" for name, release in known["libraries"].items()),
    }
    for name, text in rows.items():
        click.echo(f"  {name:<10} {text}")


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Show release, build and libraries."""
    print_version(as_json)
