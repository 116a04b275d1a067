"""What `make dist-test` built: DIST_ARCHIVES names the folder of sdist and wheel, DIST_PYTHON the interpreter of an
environment outside the tree that holds the wheel and what it requires, nothing else."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
Run = Callable[..., str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the archives."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.dist)


def _given(name: str) -> Path:
    value = os.environ.get(name)
    if not value:
        pytest.skip(f"needs {name}: `make dist-test` sets it")
    return Path(value)


def _archive(pattern: str) -> Path:
    (path,) = _given("DIST_ARCHIVES").glob(pattern)
    return path


@pytest.fixture(scope="session")
def sdist() -> list[str]:
    """The files of the sdist, without the folder that all are in."""
    with tarfile.open(_archive("*.tar.gz")) as archive:
        return [member.name.partition("/")[2] for member in archive if member.isfile()]


@pytest.fixture(scope="session")
def wheel() -> list[str]:
    """The files of the wheel."""
    with zipfile.ZipFile(_archive("*.whl")) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of the environment outside the tree."""
    return _given("DIST_PYTHON")


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Run:
    """Runs a program of that environment (`python` and what is beside it) away from the tree; what it printed."""

    def run_program(name: str, *arguments: str, stdin: str = "", lent: Path | None = None) -> str:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("KBROKER_", "PYTHON"))}
        if lent is not None:
            environ["PYTHONPATH"] = str(lent)
        done = subprocess.run(
            [str(python.parent / name), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environ,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, (name, arguments, done.stdout, done.stderr)
        return done.stdout

    return run_program
