"""Every answer of real brokers judged, as the simulation judges those of its own.

    python -m tests.scenarios.answers.run --kind cluster --seconds 60 --seed 7      (make check-answers KIND=cluster)

Forty raw connections or more, with several requests under way on each; what is wrong is a violation, whichever side one
would put it down to: `--kind kafka` and `--kind kafka-cluster` show whether Apache Kafka does the same.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.scenarios.answers.brokers import KINDS, Ports
from tests.scenarios.answers.world import NotingLoop, RealWorld
from tests.simulation import fetchers, producers
from tests.simulation.judge import ViolationError

CLIENTS = (40, 90)
REQUESTS = 4000
TOPICS = {"one": 1, "two": 2, "five": 5}
REPLICATED = ("cluster", "workers", "kafka-cluster")
OLD_KAFKA = "kafka-cluster"
NEW_KAFKA = "kafka"
STORY_LINES = 60


async def check(ports: Ports, seconds: float, seed: int, kind: str) -> RealWorld:
    """Rounds of clients for so long, then all is read.  ViolationError where an answer is wrong or missing."""
    world = RealWorld(ports, seed, 3 if kind in REPLICATED else 1, is_kafka=kind.startswith("kafka"))
    await world.create_topics(TOPICS)
    until = time.monotonic() + seconds
    while True:
        await world.round(REQUESTS, world.rng.randint(*CLIENTS))
        if time.monotonic() > until:
            break
    await world.read_back()
    return world


def run(kind: str, seconds: float, seed: int, folder: Path) -> tuple[int, str]:
    """The number of answers that were judged, and what was wrong with one, with what happened before it."""
    if kind == OLD_KAFKA:
        # Kafka 3.9 knows no topic ids in Produce.
        producers.PRODUCE_VERSIONS = tuple(each for each in producers.PRODUCE_VERSIONS if each <= 11)
        fetchers.FETCH_VERSIONS = tuple(each for each in fetchers.FETCH_VERSIONS if each <= 17)
    if kind == NEW_KAFKA:
        # Kafka 4 knows no requests from before batches.
        producers.OLD_SHARE = fetchers.OLD_SHARE = 0.0
    made: list[RealWorld] = []
    with KINDS[kind](folder) as ports, asyncio.Runner(loop_factory=NotingLoop) as runner:
        try:
            made.append(runner.run(check(ports, seconds, seed, kind)))
        except ViolationError as error:
            return 0, str(error)
    return made[0].judge.answers, ""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, default="node")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="answers-") as folder:
        answers, wrong = run(options.kind, options.seconds, seed, Path(folder))
    print(f"{options.kind}, seed {seed}: {answers} answers, {wrong or 'each of them right'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
