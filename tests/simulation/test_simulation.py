"""Histories of the whole broker, each answer judged; and what a seed promises.

A history that fails prints its seed and what happened in it: `python -m tests.simulation --replay SEED` plays it again.
`TEST_SIMULATIONS` and `TEST_SIMULATION_SEED` say how many, from which seed on.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from kbroker.storage.log.group_commit import LogCommitter
from tests.simulation import shrink as shrinking
from tests.simulation.broker_settings import fetch_settings
from tests.simulation.cluster import Cluster
from tests.simulation.quick_faults import Turmoil
from tests.simulation.runner import kind_of, play_each, play_seed
from tests.simulation.sockets import Weather
from tests.simulation.workers import Workers
from tests.simulation.world import World

# Histories are processor time alone, of which a busy machine has little.
pytestmark = pytest.mark.timeout(600)
SIMULATIONS = int(os.environ.get("TEST_SIMULATIONS", "50"))
FIRST_SEED = int(os.environ.get("TEST_SIMULATION_SEED", "1"))
ANSWERS = 100
"""The fewest that a history has on average."""
SEED_OF_A_FULL_DISK = 74
SEED_OF_A_NARROW_NETWORK = 411
PRINT_TRACES = (
    "import sys; from tests.simulation.runner import play_seed\nfor seed in sys.argv[1:]: print(play_seed(int(seed)))"
)


@pytest.mark.parametrize("part", range(2))
def test_every_answer_is_right_under_every_interleaving(part: int) -> None:
    """A client could be given another client's answer, or one that no broker may give."""
    results = list(play_each(range(FIRST_SEED + part, FIRST_SEED + SIMULATIONS, 2)))
    failed = [result.story for result in results if result.story is not None]
    assert not failed, "\n\n".join(failed[:3])
    answers = sum(result.outcome.answers for result in results if result.outcome is not None)
    assert answers > ANSWERS * len(results), "the histories test nothing"


def test_a_history_that_fails_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could read hundreds of requests of which three matter."""
    monkeypatch.setattr(LogCommitter, "holds", lambda *_: False)
    monkeypatch.setattr(LogCommitter, "bound", lambda _, end: end)
    monkeypatch.setattr(shrinking, "MOST_ATTEMPTS", 12)
    story = next(result.story for result in play_each(range(31, 500)) if result.story is not None)
    smaller = shrinking.shrink(int(story.split(":")[0].removeprefix("seed ")))
    assert smaller is not None and len(smaller) < len(story)


def test_a_seed_is_the_same_history_in_any_process() -> None:
    """A failure could not be played again."""
    seeds = [
        seed
        for kind in (World, Cluster, Turmoil, Workers)
        for seed in [seed for seed in range(1, 100) if kind_of(seed)[0] is kind][:2]
    ]
    here = [str(play_seed(seed)) for seed in seeds]
    for hashes in ("1", "2"):
        command = [sys.executable, "-c", PRINT_TRACES, *map(str, reversed(seeds))]
        found = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True
        ).stdout
        assert found.splitlines() == here[::-1]


def test_the_id_of_a_process_makes_no_other_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that failed would pass when it is played again: its brokers write other sizes to disks that fill up."""
    found = []
    for process_id in (7, 70_000):
        monkeypatch.setattr(os, "getpid", process_id.__int__)
        found.append(play_seed(SEED_OF_A_FULL_DISK))
    assert found[0] == found[1]


def test_a_follower_on_a_narrow_network_comes_to_have_what_its_leader_has() -> None:
    """Each of its fetches ended unanswered, and a leader that was started again never learned what was committed: what
    had been acknowledged was there and was shown to no client, which is no fault of a broker."""
    play_seed(SEED_OF_A_NARROW_NETWORK)


def test_no_network_is_too_narrow_for_what_a_follower_asks_for_at_once() -> None:
    """It would give up, and ask for the same again, as long as the history lasts."""
    drawn = [Weather.drawn(random.Random(seed)) for seed in range(300)]
    for weather in drawn:
        size = int(fetch_settings(weather).get("replica.fetch.response.max.bytes", 10 << 20))
        latency = sum(weather.latencies_ns) / len(weather.latencies_ns) / 1e9
        assert size / min(weather.rooms) * latency < 30, weather
    assert {len(fetch_settings(weather)) for weather in drawn} == {0, 2}, "networks are all alike"
