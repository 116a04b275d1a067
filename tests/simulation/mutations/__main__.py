"""Puts each fault into a copy of the code, builds it, and plays histories there until one fails.

    python -m tests.simulation.mutations --only lost-wake-up --simulations 2000

A patch is a fault as it was, or as it could have been; its name says which.  One that no history finds within
`--simulations` of them is reported, and so is one that does not apply any more.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("kbroker", "tests", "build/cython-release", "setup.py", "pyproject.toml", "README.md")
PLAYED = re.compile(r"(\d+) histories with")
PATCHES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.patch"))}


class NotFoundError(Exception):
    """A fault that the simulation does not find."""


def copy_code(target: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / name)


def build(folder: Path, patch: Path) -> None:
    """Compile what the patch changes: the extensions that it names, all of them where it changes what they share."""
    changed = [Path(name) for name in re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)]
    if not any(path.suffix in (".pyx", ".pxd", ".h") for path in changed):
        return
    environ = {**os.environ, "KBROKER_TEST_EXTENSIONS": "1"}
    if all(path.suffix in (".pyx", ".py") for path in changed):
        environ["KBROKER_EXT"] = ",".join(path.stem for path in changed if path.suffix == ".pyx")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True)


def find(patch: Path, simulations: int, seed: int) -> str:
    """What the first history says that fails, with how many were played.  NotFoundError."""
    with tempfile.TemporaryDirectory(prefix="kbroker-mutation-") as name:
        folder = Path(name)
        copy_code(folder)
        subprocess.run(["patch", "-s", "-p1", "-i", str(patch)], cwd=folder, check=True)
        build(folder, patch)
        command = [sys.executable, "-m", "tests.simulation", "--most-failures", "1"]
        command += ["--simulations", str(simulations), "--seed", str(seed)]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    played = PLAYED.search(said.stdout)
    first = next((line for line in said.stdout.splitlines() if line.startswith("seed ")), None)
    if said.returncode == 0 or first is None or played is None:
        raise NotFoundError(said.stderr.strip() or f"not found within {simulations} histories")
    return f"after {played.group(1)}: {first}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PATCHES, action="append")
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    missed = 0
    for name in given.only or PATCHES:
        try:
            print(f"{name}: {find(PATCHES[name], given.simulations, given.seed)}", flush=True)
        except (NotFoundError, subprocess.CalledProcessError) as error:
            missed += 1
            print(f"{name}: NOT FOUND: {error}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
