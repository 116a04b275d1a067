"""A disk that loses the end of a worker's logs while the host is stopped in order: the others have all of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.several import Several

CUTTING = 0.8
"""The share of the hosts that are stopped in order of which one loses something."""
SIZE_AT, HEAD_BYTES = 8, 12


def cut_logs(world: Several, rng: random.Random) -> None:
    """Of one worker, of topics with several replicas, at a batch or in its midst."""
    if rng.random() >= CUTTING:
        return
    node = rng.choice(list(world.nodes))
    for topic in world.topics.values():
        for number in range(topic.partitions if topic.replicas > 1 else 0):
            paths = [path for each in world.log_dirs(node) for path in Path(each).glob(f"{topic.name}-{number}/*.log")]
            written = sorted(path for path in paths if path.stat().st_size)
            if written and rng.random() < 0.7:
                data = written[-1].read_bytes()
                borders = _borders(data)
                kept = rng.choice(borders[:-1]) if rng.random() < 0.7 else rng.randrange(len(data))
                world.judge.note("%s of broker %d loses all from %d on", written[-1].name, node, kept)
                written[-1].write_bytes(data[:kept])
                world.states.cut.add((node, topic.name, number))


def _borders(data: bytes) -> list[int]:
    """Where batches begin, and the end."""
    found = [0]
    while found[-1] < len(data):
        at = found[-1]
        found.append(at + HEAD_BYTES + int.from_bytes(data[at + SIZE_AT : at + HEAD_BYTES], "big"))
    return found


__all__ = ["cut_logs"]
