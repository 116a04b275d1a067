"""Raw connections under faults, whose every answer is judged: the simulation's clients beside the counting producers.

Connections may break at any moment here; an answer that comes is right all the same, and none that is due is missing.
All is written with acks=all, as what a leader alone has may go with it.
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Mapping

from tests.scenarios.answers.world import NotingLoop, RealWorld
from tests.simulation.judge import ViolationError

CLIENTS = 32
REQUESTS = 300
TOPICS = {"judged-one": 1, "judged-three": 3}
ALL = (-1,)
END_SECONDS = 400.0


class JudgedConnections:
    """Runs in a thread of its own until `end`; `wrong` has what was found."""

    def __init__(self, ports: Mapping[int, int], replicas: int, seed: int, *, is_kafka: bool) -> None:
        self.wrong: list[str] = []
        self.answers = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(ports, replicas, seed, is_kafka), name="judged connections", daemon=True
        )
        self._thread.start()

    def _run(self, ports: Mapping[int, int], replicas: int, seed: int, is_kafka: bool) -> None:
        with asyncio.Runner(loop_factory=NotingLoop) as runner:
            runner.run(self._talk(ports, replicas, seed, is_kafka))

    async def _talk(self, ports: Mapping[int, int], replicas: int, seed: int, is_kafka: bool) -> None:
        world = RealWorld(ports, seed, replicas, is_kafka=is_kafka, acks=ALL, may_break=True)
        try:
            await world.create_topics(TOPICS)
            while not self._ending.is_set():
                await world.round(REQUESTS, CLIENTS)
            await world.read_back()
        except ViolationError as error:
            self.wrong.append(f"{error}\n{world.judge.story(40)}")
        except Exception as error:
            self.wrong.append(f"the judged connections failed: {error!r}\n{traceback.format_exc()}")
        self.answers = world.judge.answers

    def end(self) -> None:
        """Begin no further round, and read all that was written."""
        self._ending.set()
        until = time.monotonic() + END_SECONDS
        self._thread.join(until - time.monotonic())
        if self._thread.is_alive():
            self.wrong.append(f"the judged connections are not through after {END_SECONDS:.0f} s")
