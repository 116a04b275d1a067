"""Replicas are copies: a batch that two have between the same offsets has the same bytes, below what both take for
committed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.world import World

MOST_BYTES = 1 << 26
LAST_DELTA = 23
MAGIC_AT = 16


def compare_bytes(world: World) -> None:
    """Of all topics that clients share."""
    for topic in world.topics.values():
        for number in range(topic.partitions):
            name = TopicPartition(topic.name, number)
            hosted = {node: broker.services.replica_manager.hosted(name) for node, broker in world.brokers.items()}
            logs = {node: replica.log for node, replica in hosted.items() if replica is not None}
            compare_logs(f"{topic.name}-{number}", logs, world.judge.fail)


def compare_logs(name: str, logs: Mapping[int, Any], fail: Callable[[str], object]) -> None:
    """The logs of one partition, by broker."""
    known: dict[tuple[int, int], tuple[bytes, int]] = {}
    for node, log in logs.items():
        for first, last, data in _batches(log.read_bytes(log.log_start_offset, MOST_BYTES)):
            if last >= log.high_watermark:
                break
            there, other = known.setdefault((first, last), (data, node))
            if there != data:
                at = next((at for at, pair in enumerate(zip(there, data, strict=False)) if pair[0] != pair[1]), -1)
                fail(f"{name} has other bytes from {first} to {last} on broker {node} than on {other}, first at {at}")


def _batches(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """First and last offset of each, and the bytes; of a message of the formats before batches both are the same."""
    at = 0
    while len(data) - at > LAST_DELTA + 4:
        first, size = struct.unpack_from(">qi", data, at)
        delta = struct.unpack_from(">i", data, at + LAST_DELTA)[0] if data[at + MAGIC_AT] == 2 else 0
        yield first, first + delta, data[at : at + 12 + size]
        at += 12 + size
