"""A copy of the tree with a fault in it, and the first history or test there that fails.  The tree itself stays as it
is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.simulation.mutations.patches import Mutation, mutated

ROOT = Path(__file__).parents[3]
COPIED = ("kbroker", "tests", "docs", "build/cython-release", "setup.py", "pyproject.toml", "Makefile")
PYTEST = ("-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider")
PASSED, FAILED = 0, 1
PLAY = "import sys; from tests.simulation.mutations.first_failure import main; main(*map(int, sys.argv[1:]))"
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class MutantError(Exception):
    """The mutant cannot be built, or its histories cannot be played, or its tests cannot be run."""


class Which(NamedTuple):
    """Which histories may find a fault: those in turmoil, those of clusters, those with crashes; or those of KRaft
    clusters, which no seed draws by itself."""

    turmoils: bool
    clusters: bool
    crashes: bool
    kraft: bool = False


ALL = Which(turmoils=False, clusters=False, crashes=False)


@dataclass(frozen=True, slots=True)
class Finding:
    """What the histories of a mutant were like; `seed` is None where none failed."""

    histories: int
    seed: int | None = None
    violation: str = ""


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """A copy of a built tree, for as long as it is needed."""
    folder = Path(tempfile.mkdtemp(prefix="kbroker-mutant-"))
    try:
        for name in COPIED:
            _copy(tree / name, folder / name)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def mutant(mutation: Mutation, tree: Path) -> Iterator[Path]:
    """A built copy of a tree with the fault in it.  UnfitPatchError, MutantError."""
    changed = mutated(mutation, tree)
    with copied(tree) as folder:
        for name, text in changed.items():
            (folder / name).write_text(text)
        _build(folder, [Path(name) for name in changed])
        yield folder


def _copy(source: Path, target: Path) -> None:
    """With the times of files, by which the build knows what is up to date."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.o", "*.html"))
    else:
        shutil.copy2(source, target)


def _build(folder: Path, changed: list[Path]) -> None:
    """Build what a change concerns: its own extension, or all that may include a header of Cython's."""
    if any(path.suffix == ".pxd" for path in changed):
        only = ""
    else:
        only = ",".join(path.stem for path in changed if path.suffix == ".pyx")
        if not only:
            return
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    built = subprocess.run(
        command, cwd=folder, env=_environment(folder, only), capture_output=True, text=True, check=False
    )
    if built.returncode != 0:
        raise MutantError(f"the mutant cannot be built:\n{built.stdout}{built.stderr}")


def _environment(folder: Path, only: str = "") -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "KBROKER_EXT": only, "PYTHONDONTWRITEBYTECODE": "1"}


def first_failure(folder: Path, most: int, workers: int, first_seed: int = 1, which: Which = ALL) -> Finding:
    """Play a mutant's histories in processes of their own, until one fails or `most` have been played."""
    command = [
        sys.executable,
        "-c",
        PLAY,
        str(first_seed),
        str(most),
        str(workers),
        *(str(int(each)) for each in which),
    ]
    played = subprocess.run(command, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False)
    if played.returncode != 0:
        raise MutantError(f"its histories cannot be played:\n{played.stdout}{played.stderr}")
    histories, seed, violation = json.loads(played.stdout.splitlines()[-1])
    return Finding(histories, seed, violation)


def first_failing_test(folder: Path, tests: Sequence[str]) -> str | None:
    """Run tests of a copy of the tree, given as pytest takes them; the one that fails first."""
    command = [sys.executable, *PYTEST, *tests]
    ran = subprocess.run(command, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False)
    if ran.returncode == PASSED:
        return None
    failed = _FAILED_TEST.search(ran.stdout)
    if ran.returncode != FAILED or failed is None:
        raise MutantError(f"its tests cannot be run:\n{ran.stdout}{ran.stderr}")
    return failed[1]
