"""One bare system with each change: another one each day, so that each comes soon, and none of them takes long.

`make fresh-machine-today`.  What it lacks here (root, debootstrap, mirrors that answer) is a skip that says so, in
CI as well: what others serve must not keep a change out.
"""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

import pytest

from tests.package.systems import QUICK_SET_UP, SYSTEMS, run_and_speak, run_tests, set_up

SECONDS = 400
# README's tour; what differs between releases of Python: the loop and its tasks, memory, files, clients of a broker.
TESTS = (
    "tests/test_readme.py tests/network/test_slices.py tests/network/test_connection.py tests/network/test_endings.py "
    "tests/broker/test_start.py tests/cli/test_against_broker.py tests/compat/test_confluent.py "
    "tests/records/test_vectors.py tests/storage/test_kafka_files.py tests/metadata/test_local_store.py "
    "tests/coordinator/streams/test_broker.py"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5 * SECONDS)]


def of_the_day(day: datetime.date) -> str:
    """The system whose turn it is."""
    return list(SYSTEMS)[day.timetuple().tm_yday % len(SYSTEMS)]


def test_a_record_goes_through_the_system_of_the_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A change that breaks one release of Python would be met by who has it, and by nobody before."""
    system = of_the_day(datetime.datetime.now(datetime.UTC).date())
    with capsys.disabled():
        print(f"\nthe bare system of the day: {system}, Python {SYSTEMS[system].python}")
    machine = tmp_path / "machine"
    try:
        set_up(machine, system, seconds=SECONDS, patience=120, commands=QUICK_SET_UP)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the set-up of {system} took longer than {SECONDS} s")
    run_and_speak(machine)
    command = ".venv/bin/python -m pytest -q -n 2 --dist loadfile -m 'not slow and not fuzz'"
    said = run_tests(machine, f"{command} {TESTS}", seconds=2 * SECONDS)
    with capsys.disabled():
        print(said)


def test_each_system_has_its_day() -> None:
    """One would never be tried."""
    first = datetime.date(2026, 1, 1)
    days = [first + datetime.timedelta(days=number) for number in range(len(SYSTEMS))]
    assert {of_the_day(day) for day in days} == set(SYSTEMS)
