"""`kbroker version` and `--version`: what a report of a fault needs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest

from kbroker import __version__
from kbroker.cli import version
from kbroker.cli.main import run


def test_version_names_build_machine_and_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    """A bug report could not say what it is about."""
    assert run(["--version", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["version"] == __version__
    assert known["architecture"] == platform.machine()
    assert platform.python_version() in known["python"]
    assert known["build"] in ("release", "debug", "sanitize")
    assert any(character.isdigit() for character in known["compiler"])
    assert set(known["simd"]) == {"crc32c", "md5"}
    assert {"uvloop", "confluent-kafka", "librdkafka", "lz4", "zstandard"} <= set(known["libraries"])
    assert run(["--version"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"kbroker {__version__}\n")
    assert known["compiler"] in said and known["python"] in said


def test_the_command_says_what_the_option_says(capsys: pytest.CaptureFixture[str]) -> None:
    """`kbroker version`, which newcomers try, would be an unknown command."""
    for arguments in ([], ["--json"]):
        said = []
        for word in ("--version", "version"):
            assert run([word, *arguments]) == 0
            said.append(capsys.readouterr().out)
        assert said[0] == said[1] != ""


def test_json_is_an_option_of_version_and_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """`kbroker --json topics list` would print a table, or nothing."""
    assert run(["--json", "topics", "list"]) == 2
    assert "--json" in capsys.readouterr().err


def test_the_commit_is_that_of_the_clone_or_of_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel or a clone would be told from another of the same release by nothing."""
    package = tmp_path / "kbroker"
    package.mkdir()
    monkeypatch.setattr("kbroker.__file__", str(package / "__init__.py"))
    assert version.commit() is None
    (package / "file").write_text("one")
    own = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    own |= {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        try:
            subprocess.run(["git", *command], cwd=tmp_path, env=own, check=True)
        except FileNotFoundError:
            pytest.skip("needs git")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert version.commit() == head.stdout.strip()
    (package / "file").write_text("two")
    assert version.commit() == f"{head.stdout.strip()}-dirty"
    (package / "commit.txt").write_text("abc\n")
    assert version.commit() == "abc"
