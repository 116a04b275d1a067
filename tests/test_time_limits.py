"""A test that runs out of time fails alone and is named; the run goes on, and nothing that it started stays behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.waiting import wait_for

ROOT = Path(__file__).parent.parent
TESTS = """
import signal
import subprocess
import sys
import time

import pytest

STUCK = "{stuck}"


def child(path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    path.write_text(str(process.pid))


@pytest.mark.timeout(1)
def test_that_hangs(tmp_path_factory):
    child(tmp_path_factory.getbasetemp().parent / "child")
    if STUCK == "in C":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(600)


@pytest.mark.parametrize("number", range(20))
def test_others(number):
    pass
"""


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run_pytest(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The tests in a folder, with the limits of these."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TESTS_OF_"))}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *words, "-p", "tests.limits"),
            *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "base")),
        ],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


@pytest.mark.parametrize(
    ("workers", "stuck"),
    [
        (("-n", "0"), "in Python"),
        (("-n", "2"), "in Python"),
        (("-n", "2"), "in C"),
        # As `make test` has it.
        (("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"), "in C"),
        (("-n", "1", "--dist", "loadfile"), "in C"),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(each),
)
def test_a_test_that_hangs_fails_alone(tmp_path: Path, workers: tuple[str, ...], stuck: str) -> None:
    """One test that hangs would end the whole run, and nobody know which one, while its brokers hold their ports."""
    (tmp_path / "test_some.py").write_text(TESTS.format(stuck=stuck))
    done = run_pytest(tmp_path, "test_some.py", *workers)
    assert re.search(r"1 failed, 20 passed", done.stdout), done.stdout + done.stderr
    assert re.search(r"test_some\.py::test_that_hangs", done.stdout)
    assert "INTERNALERROR" not in done.stdout + done.stderr
    assert done.returncode == 1
    if stuck == "in C":
        (note,) = tmp_path.rglob("child")
        wait_for(lambda: not is_there(int(note.read_text())), "what its worker has started to be ended")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_run_goes_on_to_its_end_when_a_worker_ends(tmp_path: Path, workers: str) -> None:
    """A crash would have the whole run hang at its end, with nothing printed of what failed."""
    for number in range(8):
        (tmp_path / f"test_{number}.py").write_text("def test_it():\n    pass\n")
    (tmp_path / "test_5.py").write_text("import os\ndef test_first():\n    os._exit(1)\ndef test_second():\n    pass\n")
    done = run_pytest(tmp_path, ".", "-n", workers, "--dist", "loadfile", "--no-loadscope-reorder")
    assert re.search("1 failed, 8 passed", done.stdout), done.stdout + done.stderr
    assert "crashed while running 'test_5.py::test_first'" in done.stdout
