"""What tests of Spark fetch on first use into `.tools`: never copied into the repository, never shipped."""

from __future__ import annotations

from pathlib import Path

from tests.compat.installing import TOOLS as TOOLS
from tests.compat.installing import Locked, install
from tests.tools import require_tool


def fetched(name: str, what: str, command: list[str]) -> Path:
    """The directory `.tools/<name>`, which the command filled once; skips (in CI: fails) the test when it cannot."""
    folder = TOOLS / name
    with Locked(name):
        if not (folder / "complete").exists():
            install(command, TOOLS, what)
            (folder / "complete").touch()
    return folder


def fetched_jars(name: str, what: str, pom: Path, *options: str) -> list[str]:
    """The paths of the jars that a Maven project names, in `.tools/<name>`."""
    require_tool("java")
    require_tool("mvn")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={TOOLS / name}"]
    return sorted(str(jar) for jar in fetched(name, what, [*command, *options]).glob("*.jar"))
