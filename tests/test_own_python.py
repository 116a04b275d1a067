"""Python processes that the product starts import nothing from the folder in which they are started.

Of `kbroker.own_python`, and of every place that starts an interpreter.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path

import pytest

import kbroker
from kbroker.cli import container
from kbroker.config import BrokerConfig
from kbroker.own_python import module_command
from tests.workers.processes import Workers

PACKAGE = Path(kbroker.__file__).parent
POISON = ("json", "re", "socket", "asyncio", "click", "kbroker", "logging", "uvloop", "grpc_tools")


def poisoned(folder: Path) -> Path:
    """A folder whose modules leave a file behind when one of them runs."""
    folder.mkdir(exist_ok=True)
    for name in POISON:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('{name} ')\n")
    return folder


def starts_without_safe_path(source: str) -> list[int]:
    """The lines with a command line of Python that runs a module or text without `-P`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.List, ast.Tuple)):
            words = [each.value if isinstance(each, ast.Constant) else ast.unparse(each) for each in node.elts]
            runs = [words.index(flag) for flag in ("-m", "-c") if flag in words]
            is_python = "sys.executable" in words or any(str(word).startswith("python") for word in words)
            if runs and is_python and not {"-P", "-I"} & set(words[: runs[0]]):
                found.append(node.lineno)
    return found


def test_the_search_sees_a_start_without_the_option() -> None:
    """The next test would find nothing, whatever there is."""
    assert starts_without_safe_path('run([sys.executable, "-m", "x"])\nrun(("python3", "-c", text))') == [1, 2]
    assert not starts_without_safe_path('run([sys.executable, "-P", "-m", "x"])')


def test_no_process_that_is_started_has_the_current_folder_on_its_path() -> None:
    """A `json.py` where a broker is started would run in its children."""
    found = {
        str(path.relative_to(PACKAGE)): starts_without_safe_path(path.read_text()) for path in PACKAGE.rglob("*.py")
    }
    assert not {name: lines for name, lines in found.items() if lines}


def test_the_health_check_of_the_image_takes_nothing_from_its_folder() -> None:
    """The folder of the image's process may be a volume."""
    text = (PACKAGE.parent / "docker" / "Dockerfile").read_text()
    (check,) = [line.partition("CMD ")[2] for line in text.splitlines() if "/readyz" in line]
    assert starts_without_safe_path(f"run({json.loads(check)!r})") == []


def test_workers_take_no_module_from_the_folder_of_their_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a host's other users may write into that folder would run with the broker's rights."""
    monkeypatch.chdir(poisoned(tmp_path / "here"))
    workers = Workers(tmp_path / "host", 2)
    try:
        workers.up()
    finally:
        workers.stop()
    assert not (tmp_path / "here" / "ran").exists()


def test_the_process_that_makes_first_topics_takes_no_module_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image's working directory may be a volume that others write."""
    monkeypatch.chdir(poisoned(tmp_path / "here"))
    # With this it imports what it needs, and makes nothing.
    monkeypatch.setenv("KAFKA_CREATE_TOPICS", "")
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(command: list[str]) -> None:
        started.append(popen(command, stderr=subprocess.DEVNULL))

    monkeypatch.setattr(container.subprocess, "Popen", start)
    container._make_topics_later(BrokerConfig.from_mapping({}))
    for process in started:
        process.wait(60)
    assert started and not (tmp_path / "here" / "ran").exists()


def test_protoc_takes_no_module_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer's schemas are compiled by a child of the broker."""
    pytest.importorskip("grpc_tools")
    monkeypatch.chdir(poisoned(tmp_path / "here"))
    command = [*module_command("grpc_tools.protoc"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=dict(os.environ))
    assert done.stdout.startswith("libprotoc") and not (tmp_path / "here" / "ran").exists()
