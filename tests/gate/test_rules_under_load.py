"""ACLs that change hundreds of times under load: those who keep their rights notice nothing, those who lose them do."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.gate.rules_world import REFUSED, World, fetch, produced
from tests.scenarios.wire import Wire

ROUNDS = 60
OTHERS = 5


def test_rules_that_change_all_the_time_fail_nobody_who_keeps_a_right(tmp_path: Path) -> None:
    """Each change would cost clients errors, or let one that has lost its right go on for a while."""
    world = World(tmp_path)
    stopping = threading.Event()
    codes: Counter[int] = Counter()
    failures: list[BaseException] = []

    def working(work: Callable[[Wire], int]) -> Callable[[], None]:
        def run() -> None:
            wire = Wire(world.broker.port)
            try:
                while not stopping.is_set():
                    codes[work(wire)] += 1
            except BaseException as error:
                failures.append(error)
            finally:
                wire.close()

        return run

    asked = fetch(world, 12, 0, session_epoch=-1)
    asked["topics"][0]["partitions"][0]["fetch_offset"] = 0

    def fetched(wire: Wire) -> int:
        return int(wire.ask("Fetch", 12, asked).responses[0].partitions[0].error_code)

    threads = [threading.Thread(target=working(work)) for work in (produced, fetched)]
    try:
        for thread in threads:
            thread.start()
        for number in range(ROUNDS):
            # The answer to the change is when it counts.
            world.let(4)
            assert produced(world.second) == 0, number
            for other in range(OTHERS):
                world.allow(principal=f"User:{number}-{other}", resource_name=f"t{other}", resource_pattern_type=4)
            world.withdraw()
            assert produced(world.second) == REFUSED, number
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
        world.close()
    assert not failures and set(codes) == {0} and codes[0] > ROUNDS
