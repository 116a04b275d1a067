"""README's commands, run as they stand there, on a fresh clone.

The clone has the files that git knows.  `make run` and `make test` are what a fresh clone would take minutes for: a
`make` that is first in the PATH runs the build under test in their place.  Everything else is run by bash as it stands,
in README's order, in the directory of the clone.  The ports are README's own, so where the system allows it all of it
happens in a network of its own.

A slow test does without that: what git clones is built, installed and started by its own `make`, and of `make test` the
tests alone are left out.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kbroker
from tests.readme import PORTS, PROGRAM, is_taken, launcher, program

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(\.venv/bin/[^`]*)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
NOT_CLONED = (".git", ".tools", ".venv", "venv", "build", "data", "*.so", "__pycache__", "node_modules")

MAKE = """#!/bin/sh
case "$*" in
  run) echo $$ >> made; KBROKER_HOME="$PWD" exec .venv/bin/kbroker start ;;
  test) exec .venv/bin/python -m pytest --version ;;
  *) echo "README has a make goal that this test does not know: $*" >&2; exit 64 ;;
esac
"""
REAL_MAKE = """#!/bin/sh
case "$*" in
  run) exec {make} run ;;
  test) exec {make} test PYTEST=--version ;;
  *) echo "README has a make goal that this test does not know: $*" >&2; exit 64 ;;
esac
"""


def blocks() -> list[tuple[str, str]]:
    """Language and text of each block, then of each whole command within a line."""
    text = README.read_text()
    found = [(match[1], match[2]) for match in BLOCK.finditer(text)]
    return found + [("sh", command) for command in INLINE.findall(text) if "…" not in command]


def copy_tracked(target: Path) -> None:
    """What a clone would have; of a tree without git, all but what is built."""
    has_git = shutil.which("git") is not None
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False) if has_git else None
    if listed is None or listed.returncode != 0:
        shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*NOT_CLONED))
        return
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith("docs/benchmarks/"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A fresh clone; the brokers that are started in it end with the test."""
    target = tmp_path / "clone"
    copy_tracked(target)
    shutil.rmtree(target / "kbroker", ignore_errors=True)  # The build under test runs, wherever it is installed.
    program(target / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program(target / ".venv/bin/kbroker", PROGRAM.format(python=sys.executable, module="kbroker.cli"))
    program(tmp_path / "bin" / "make", MAKE)
    yield target
    if (target / "made").exists():
        for number in (target / "made").read_text().split():
            if Path(f"/proc/{number}/cwd").exists() and Path(f"/proc/{number}/cwd").readlink() == target:
                os.kill(int(number), signal.SIGKILL)


@pytest.fixture
def built_clone(tmp_path: Path) -> Iterator[Path]:
    """What `git clone` gives of this tree, with nothing built; the broker that is started in it ends with the test."""
    target = tmp_path / "clone"
    make = shutil.which("make")
    git = shutil.which("git")
    clone = (git or "", "clone", "-q", ROOT, target)
    if make is None or git is None or subprocess.run(clone, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs git, a tree that git knows, and make")
    program(tmp_path / "bin" / "make", REAL_MAKE.format(make=make))
    yield target
    lock = target / "data" / ".lock"
    if lock.exists() and Path(f"/proc/{lock.read_text().strip()}/cwd").exists():
        os.kill(int(lock.read_text()), signal.SIGKILL)


def script() -> str:
    """README as one script: the first block starts the broker, as in a terminal of its own; the others follow."""
    parts = ["set -e -o pipefail", "if ip link set lo up 2> /dev/null; then :; fi"]
    for number, (language, text) in enumerate(blocks()):
        if number == 0:
            parts += [
                f"{{ {text.strip()}\n}} > first.log 2>&1 &",
                "until .venv/bin/python answers.py 2> answers.log; do sleep 0.1; jobs %1 > jobs.log; done",
            ]
        elif language == "python":
            parts.append(f".venv/bin/python - <<'END-OF-BLOCK'\n{text}END-OF-BLOCK")
        elif "kcat" not in text or shutil.which("kcat"):
            parts.append(text.rstrip())
        parts.append(f"echo '== block {number} is done'")
    return "\n".join(parts) + "\n"


@pytest.mark.timeout(900)
def test_readmes_commands_do_what_it_says(clone: Path, tmp_path: Path) -> None:
    """Who follows README to the letter would be stopped by the first command that does not work."""
    search = f"{Path(kbroker.__file__).parents[1]}:{clone}"
    check(follow_readme(clone, tmp_path, launcher(), 840, PYTHONPATH=search))


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_fresh_clone_builds_and_does_what_readme_says(built_clone: Path, tmp_path: Path) -> None:
    """A file that git does not have, or a package that nothing installs, would stop everybody but its author."""
    if taken := [port for port in PORTS if is_taken(port)]:
        pytest.skip(f"README's ports {taken} are in use")
    check(follow_readme(built_clone, tmp_path, [], 2300))


def follow_readme(clone: Path, tmp_path: Path, launcher: list[str], seconds: float, **variables: str) -> str:
    """Runs README's commands in `clone`; what they print."""
    (clone / "answers.py").write_text(
        "import sys\nfrom tests.broker_process import answers_api_versions\nsys.exit(not answers_api_versions(9092))\n"
    )
    (clone / "readme.sh").write_text(script())
    own = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("KBROKER_") and key not in own}
    environ["PATH"] = f"{tmp_path / 'bin'}:{environ['PATH']}"
    started = time.monotonic()
    with (tmp_path / "output").open("w+b") as output:
        process = subprocess.Popen(
            [*launcher, "bash", "readme.sh"],
            cwd=clone,
            env={**environ, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        status = process.wait(seconds)
        output.seek(0)
        said = output.read().decode()
    assert status == 0, f"after {time.monotonic() - started:.0f} s:\n{said}\n{(clone / 'first.log').read_text()}"
    return said


def check(said: str) -> None:
    assert "alice bought 1 book" in said and "bob bought 2 pens" in said
    assert "b'dave' b'3 pencils'" in said
    assert "identical" in said
    assert f"== block {len(blocks()) - 1} is done" in said


def test_readme_has_the_blocks_that_the_test_knows() -> None:
    """A block in another language, or a command that is not from the clone, would not be run."""
    text = README.read_text()
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(BLOCK.findall(text))
    first = blocks()[0][1].splitlines()
    assert [line.split("#")[0].strip() for line in first] == ["make run", "make test"]


def test_readmes_links_lead_somewhere() -> None:
    """A reader would be sent to a page that is gone."""
    missing = [link for link in LINK.findall(README.read_text()) if not (ROOT / link).exists()]
    assert not missing or not (ROOT / "docs").exists(), missing


def test_no_page_installs_kbroker_from_where_it_is_not() -> None:
    """kbroker is not on PyPI: `pip install kbroker` fails in a fresh environment, or installs somebody else's."""
    pages = [README, *(ROOT / "docs").glob("*.md"), *Path(kbroker.__file__).parent.rglob("*.py")]
    wrong = re.compile(r"pip install ['\"]?kbroker")
    assert [str(page) for page in pages if wrong.search(page.read_text())] == []
