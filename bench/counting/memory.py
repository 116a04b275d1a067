"""Private memory for each of many: partitions after a restart, connections, committed offsets."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench import frames, group_frames
from bench.admin import Admin
from bench.cell import SMALL_RECORD_BYTES
from bench.counting.starts import PLAIN, private_kib, started
from bench.groups import coordinate

PARTITIONS, PARTITIONS_PER_TOPIC = 10_000, 1_000
CONNECTIONS = 10_000
OFFSETS, OFFSETS_PER_GROUP = 100_000, 1_000
SETTLE_SECONDS, STILL_KIB = 2.0, 64
KIB = 1024


def _settled(pid: int) -> int:
    """A process's private memory in bytes, once it does not change any more."""
    last = -1
    for _ in range(30):
        time.sleep(SETTLE_SECONDS)
        found = private_kib(pid)
        if abs(found - last) < STILL_KIB:
            break
        last = found
    return found * KIB


def of_partitions() -> float:
    """Bytes for each partition that holds a batch, after a restart."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with started(PLAIN, folder) as broker:
            empty = _settled(broker.pid)
            with Admin("127.0.0.1", broker.port) as admin:
                for topic in range(PARTITIONS // PARTITIONS_PER_TOPIC):
                    admin.create_topic(f"many-{topic}", PARTITIONS_PER_TOPIC)
                    record = frames.batch(1, SMALL_RECORD_BYTES)
                    for index in range(PARTITIONS_PER_TOPIC):
                        admin.ask(frames.produce(f"many-{topic}", index, record, 1))
        with started(PLAIN, folder) as broker:
            return (_settled(broker.pid) - empty) / PARTITIONS


def of_connections() -> float:
    """Bytes for each connection that has asked once and is idle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with tempfile.TemporaryDirectory() as name, started(PLAIN, Path(name)) as broker, ExitStack() as opened:
            empty = _settled(broker.pid)
            for _ in range(CONNECTIONS):
                admin = opened.enter_context(Admin("127.0.0.1", broker.port))
                admin.ask(frames.api_versions())
            return (_settled(broker.pid) - empty) / CONNECTIONS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def of_offsets() -> float:
    """Bytes for each offset that a group has committed, after a restart."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with started(PLAIN, folder) as broker, Admin("127.0.0.1", broker.port) as admin:
            admin.create_topic("many", OFFSETS_PER_GROUP)
            coordinate(admin, "group-0")
            empty = _settled(broker.pid)
            for group in range(OFFSETS // OFFSETS_PER_GROUP):
                admin.ask(group_frames.commit(f"group-{group}", "many", range(OFFSETS_PER_GROUP), 1_000))
            return (_settled(broker.pid) - empty) / OFFSETS


MEMORY: dict[str, Callable[[], float]] = {
    "bytes per partition of 10,000 after a restart": of_partitions,
    "bytes per connection of 10,000": of_connections,
    "bytes per committed offset of 100,000": of_offsets,
}
