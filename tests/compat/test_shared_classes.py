"""Java programs of the tests start with the classes of an archive, and without it where there is none that fits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compat.shared_classes import shared_classes
from tests.compat.tooling import java_command, old_java_command
from tests.tools import require_tool

pytestmark = pytest.mark.kafka
TOOL = ("kafka.tools.StorageTool", "random-uuid")


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def with_options(command: list[str], *options: str) -> list[str]:
    return [command[0], *options, *command[1:]]


@pytest.mark.parametrize("made", [java_command, old_java_command], ids=["new", "old"])
def test_kafkas_classes_come_from_the_archive(made: object) -> None:
    """Each of the hundred JVMs of a run would load thousands of classes out of jars."""
    assert callable(made)
    command = made(*TOOL)
    if not any("SharedArchiveFile" in each for each in command):
        pytest.skip("this Java makes no archive")
    done = run(with_options(command, "-Xlog:class+load"))
    loaded = [line for line in done.stdout.splitlines() if " org.apache.kafka.common.Uuid " in line]
    assert done.returncode == 0 and loaded and all("shared objects file" in line for line in loaded)


def test_an_archive_that_does_not_fit_is_passed_over(tmp_path: Path) -> None:
    """A Java that was updated would fail every test with a JVM, or write warnings among what tools print."""
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"of another Java" * 10_000)
    command = [
        f"-XX:SharedArchiveFile={archive}" if "SharedArchiveFile" in each else each for each in java_command(*TOOL)
    ]
    done = run(command)
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout.splitlines()) == 1


def test_a_java_that_makes_no_archive_is_asked_once(tmp_path: Path) -> None:
    """Each command of a run would try again, or none of them run."""
    require_tool("java")
    asked: list[str] = []

    def java(java_class: str, *args: str, options: object = ()) -> list[str]:
        asked.append(java_class)
        return ["false"]

    assert shared_classes(tmp_path, java) == []
    assert shared_classes(tmp_path, java) == []
    assert asked == [TOOL[0]]
