"""A test that runs out of time fails alone and is named; the run goes on, and nothing that it started stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat import installing
from tests.compat.waiting import wait_for
from tests.limits import standing_still

ROOT = Path(__file__).parent.parent
# Each worker begins with what decides how the test ends, before the clock of a test runs: of one that is stuck in C no
# signal comes through, and one in Python is left to its signal, however late a busy machine brings it.
TESTS = """
import atexit
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import limits

if "{stuck}" == "in C":
    signal.setitimer = lambda *_: (0.0, 0.0)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    atexit.register(child.kill)
    Path(__file__).with_name("child-of-" + os.environ["PYTEST_XDIST_WORKER"]).write_text(str(child.pid))
else:
    limits.GRACE = 1000


@pytest.mark.timeout(1)
def test_that_hangs():
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
        timeout=250,
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
        (worker,) = set(
            re.findall(r"worker '(\w+)' crashed while running 'test_some.py::test_that_hangs'", done.stdout)
        )
        child = int((tmp_path / f"child-of-{worker}").read_text())
        wait_for(lambda: not is_there(child), "what its worker has started to be ended")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_run_goes_on_to_its_end_when_a_worker_ends(tmp_path: Path, workers: str) -> None:
    """A crash would have the whole run hang at its end, with nothing printed of what failed."""
    for number in range(8):
        (tmp_path / f"test_{number}.py").write_text("def test_it():\n    pass\n")
    (tmp_path / "test_5.py").write_text("import os\ndef test_first():\n    os._exit(1)\ndef test_second():\n    pass\n")
    done = run_pytest(tmp_path, ".", "-n", workers, "--dist", "loadfile", "--no-loadscope-reorder")
    assert re.search("1 failed, 8 passed", done.stdout), done.stdout + done.stderr
    assert "crashed while running 'test_5.py::test_first'" in done.stdout


def test_a_run_goes_on_when_all_its_workers_end_at_once(tmp_path: Path) -> None:
    """A machine that stands still for minutes ends the tests of each, and the run would end with xdist's own error."""
    text = """
import os
import time
from pathlib import Path

def test_first():
    Path(__file__).with_suffix(".there").touch()
    while len([*Path(__file__).parent.glob("*.there")]) < 2:
        time.sleep(0.01)
    os._exit(1)

def test_second():
    pass
"""
    for number in range(2):
        (tmp_path / f"test_{number}.py").write_text(text)
    for number in range(2, 8):
        (tmp_path / f"test_{number}.py").write_text("def test_it():\n    pass\n")
    done = run_pytest(tmp_path, ".", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    assert re.search("2 failed, 8 passed", done.stdout), done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


def test_what_a_test_waits_for_of_others_is_not_its_own_time() -> None:
    """On a fresh machine each test that waits for a slow mirror would fail, and nothing be wrong with any."""
    own, _ = signal.setitimer(signal.ITIMER_REAL, 3000)
    try:
        with standing_still():
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 3000
    finally:
        signal.setitimer(signal.ITIMER_REAL, own)


@pytest.mark.parametrize(("fails", "is_there"), [(1, True), (9, False)], ids=["for a moment", "for good"])
def test_a_mirror_that_fails_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int, is_there: bool
) -> None:
    """One connection that a mirror drops would fail a whole run; or a mirror that is away be asked for ever."""
    monkeypatch.setattr(installing, "PAUSES", (0, 0))
    monkeypatch.delenv("CI", raising=False)
    fetch = f'echo once more >> asked; test $(wc -l < asked) -gt {fails} || {{ echo "connection reset" >&2; exit 1; }}'
    try:
        installing.install(["sh", "-c", fetch], tmp_path, "packages")
    except pytest.skip.Exception as skipped:
        assert not is_there and "connection reset" in str(skipped)
    else:
        assert is_there
    assert len((tmp_path / "asked").read_text().splitlines()) == min(fails, 2) + 1
