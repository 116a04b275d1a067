"""The systems that kbroker is tried on as they come, with what is done there.

Each release of Python that kbroker takes is there once.  Ubuntu's stand for Fedora's Python, which is as new.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.archives import unpack
from tests.package.bare_system import Release, as_connected, bare_system, run_inside

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class System:
    """`python`: the release that it comes with."""

    release: Release
    python: str


SYSTEMS = {
    "Debian 12": System(Release("bookworm"), "3.11"),
    "Ubuntu 24.04": System(Release("noble", "gutsy", "main,universe"), "3.12"),
    "Debian 13": System(Release("trixie"), "3.13"),
    "Ubuntu 26.04": System(Release("resolute", "gutsy", "main,universe"), "3.14"),
}
PACKAGES = ("python3", "python3-venv", "python3-dev", "build-essential")

BEGIN = """
set -e -o pipefail
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
cd /checkout
for tool in git kcat java node; do ! command -v $tool; done
"""
SET_UP = "make install .venv/made/test"
QUICK_SET_UP = f"""
printf '#!/bin/sh\\nexec cc "$@" -O1\\n' > /usr/local/bin/quick-cc
chmod 755 /usr/local/bin/quick-cc
CC=/usr/local/bin/quick-cc {SET_UP}
"""
"""It has the compiler spend less on making code fast, as for the checked build: a third of the time."""
RUN = """
make run > /run.log 2>&1 &
for attempt in $(seq 900); do .venv/bin/kbroker topics list > /dev/null 2>&1 && break; sleep 0.2; done
echo hello | .venv/bin/kbroker produce greetings
.venv/bin/kbroker consume greetings --from-beginning --max-messages 1
kill "$(cat data/.lock)"
wait
"""
PIP_FAILED = re.compile(r"^ERROR: (?:No matching|Could not install|Exception)|^pip\._vendor\S+(?:Error|Timeout)", re.M)
NO_ANSWER = re.compile(
    r"connection broken by|name resolution|Max retries exceeded|Read timed out|IncompleteRead|"
    r"Connection (?:refused|reset|aborted|timed out)|(?:5\d\d|429) (?:Server|Client) Error"
)


def need_packages(done: subprocess.CompletedProcess[str], name: str) -> None:
    """Skip where an index of packages did not answer what ran; AssertionError where it failed otherwise."""
    said = done.stdout[-3000:] + done.stderr[-3000:]
    if done.returncode and PIP_FAILED.search(said) and NO_ANSWER.search(said):
        pytest.skip(f"no packages for {name}: {said[-600:]}")
    assert done.returncode == 0, said


def clone(target: Path) -> None:
    """What a clone has; of what has changed since the last commit nothing."""
    archive = target / "clone.tar"
    subprocess.run(["git", "archive", "-o", str(archive), "HEAD"], cwd=ROOT, check=True)
    unpack(archive, target / "checkout")


def set_up(machine: Path, name: str, *, seconds: float, patience: float = 900, commands: str = SET_UP) -> None:
    """A system with a clone in it, made ready for both commands; the test is skipped where mirrors do not answer.

    `seconds` are the set-up's, `patience` is debootstrap's.
    """
    bare_system(machine, SYSTEMS[name].release, PACKAGES, seconds=patience)
    as_connected(machine)
    clone(machine)
    done = run_inside(machine, BEGIN + commands, seconds=seconds, has_network=True)
    need_packages(done, name)
    version = run_inside(machine, f"{BEGIN}.venv/bin/python -V", seconds=60).stdout
    assert version.startswith(f"Python {SYSTEMS[name].python}."), version


def run_and_speak(machine: Path) -> None:
    """`make run`, with loopback alone, and a record through it."""
    done = run_inside(machine, BEGIN + RUN, seconds=600)
    assert done.returncode == 0 and done.stdout.endswith("hello\n"), done.stdout + done.stderr


def run_tests(machine: Path, command: str, *, seconds: float) -> str:
    """Tests by a command of a shell, with loopback alone; pytest's last line."""
    done = run_inside(machine, BEGIN + command, seconds=seconds)
    summary: list[str] = re.findall(r"^(?:(?:FAILED|ERROR) .*|=* ?\d+ (?:passed|failed).*)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, "\n".join(summary) or done.stdout[-3000:] + done.stderr[-3000:]
    return summary[-1].strip("= ")
