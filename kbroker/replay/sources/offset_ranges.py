"""From options to ranges of offsets: which partitions, from where to where, in how many pieces.

Meanings are those of Spark's Kafka connector: offsets given for some partitions must be given for all; a time is the
first record at or after it; a partition that is new to a query starts at its earliest offset.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from kbroker.client.cluster import Cluster
from kbroker.client.errors import PASSING, RetriesExhaustedError, TopicUnknownError
from kbroker.client.list_offsets import NO_OFFSET, TopicPartition, list_offsets
from kbroker.java_patterns import compile_java_pattern
from kbroker.replay.sources.offset_json import Offsets, names
from kbroker.replay.sources.read_options import Limit, ReadOptions
from kbroker.types import EARLIEST, LATEST

T = TypeVar("T")


class OffsetsError(ValueError):
    """Offsets or times in options that do not fit the topics."""


class Range(NamedTuple):
    """The records of one partition with start <= offset < stop."""

    topic: str
    partition: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many offsets it spans."""
        return self.stop - self.start


class OffsetFinder:
    """Asks one cluster for the partitions of `options` and for their offsets."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self.cluster = cluster
        self.options = options

    def partitions(self) -> list[TopicPartition]:
        """The partitions to read, as the cluster has them now."""
        return sorted(self._retried(self._find_partitions))

    def resolve(self, limit: Limit, partitions: Sequence[TopicPartition]) -> Offsets:
        """The offset that the limit stands for, for each partition."""
        if limit.offsets is not None:
            self._check_same(limit.option, limit.offsets, partitions)
            places = {at: offset for at, offset in limit.offsets.items() if offset < 0}
            return {**limit.offsets, **self.at(places)}
        if limit.times is not None or limit.time is not None:
            times = limit.times
            if times is None:
                assert limit.time is not None
                times = dict.fromkeys(partitions, limit.time)
            else:
                self._check_same(limit.option, times, partitions)
            return self._resolve_times(limit, times)
        return self.at(dict.fromkeys(partitions, limit.place))

    def at(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """Offsets by place (EARLIEST, LATEST) or time; -1 where no record is so late."""
        if not wanted:
            return {}
        found = self._retried(lambda: list_offsets(self.cluster, wanted, self.options.fetch.isolation))
        return {at: place.offset for at, place in found.items()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where each log starts."""
        return self.at(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where each log ends for this reader's isolation level."""
        return self.at(dict.fromkeys(partitions, LATEST))

    def _resolve_times(self, limit: Limit, times: Mapping[TopicPartition, int]) -> Offsets:
        found = self.at(times)
        late = [at for at, offset in found.items() if offset == NO_OFFSET]
        if late and limit.option.startswith("starting") and not limit.latest_if_none:
            raise OffsetsError(
                f"{limit.option}: {names(late)} has no record at or after the time given; give an earlier one, or "
                "startingOffsetsByTimestampStrategy=latest to start at the end there"
            )
        return {**found, **self.latest(late)}

    def _find_partitions(self) -> set[TopicPartition]:
        options = self.options
        if options.assign:
            topics = self.cluster.describe(sorted({topic for topic, _ in options.assign}))
            missing = [(topic, number) for topic, number in options.assign if number not in topics[topic].partitions]
            if missing:
                raise TopicUnknownError(f"option assign: {names(missing)} does not exist at {options.bootstrap}")
            return set(options.assign)
        if options.subscribe:
            topics = self.cluster.describe(options.subscribe)
        else:
            pattern = compile_java_pattern(options.subscribe_pattern)
            everything = self.cluster.list_topics()
            topics = {name: info for name, info in everything.items() if pattern.search(name) and not info.is_internal}
        return {(name, number) for name, info in topics.items() for number in info.partitions}

    def _check_same(
        self, option: str, given: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]
    ) -> None:
        missing, unknown = set(partitions) - given.keys(), given.keys() - set(partitions)
        if missing:
            raise OffsetsError(
                f"option {option} must name all partitions that are read (-1 for latest, -2 for earliest); "
                f"missing: {names(missing)}"
            )
        if unknown:
            raise OffsetsError(f"option {option} names partitions that are not read: {names(unknown)}")

    def _retried(self, ask: Callable[[], T]) -> T:
        """`fetchOffset.numRetries` more tries, `fetchOffset.retryIntervalMs` apart."""
        left = self.options.offset_retries
        while True:
            try:
                return ask()
            except (*PASSING, RetriesExhaustedError):
                if left == 0:
                    raise
                left -= 1
            time.sleep(self.options.offset_retry_s)


def split(ranges: Sequence[Range], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """Ranges without the empty ones, cut so that none has more than `max_records` and there are about `min_partitions`.

    Small ranges stay whole; the others get pieces in proportion to their sizes, as in KafkaOffsetRangeCalculator.
    """
    found = [piece for piece in ranges if piece.size > 0]
    if max_records is not None:
        found = [piece for whole in found for piece in _cut(whole, -(-whole.size // max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(piece.size for piece in found)
    small = {piece for piece in found if _share(piece.size, total, min_partitions) == 1}
    total -= sum(piece.size for piece in small)
    pieces = max(min_partitions - len(small), 1)
    return [part for whole in found for part in _cut(whole, 1 if whole in small else _share(whole.size, total, pieces))]


def _share(size: int, total: int, pieces: int) -> int:
    return max(int(size / total * pieces + 0.5), 1)


def _cut(whole: Range, pieces: int) -> list[Range]:
    """Equal pieces; a range never has more than it has offsets."""
    pieces = min(pieces, whole.size)
    edges = [whole.start + whole.size * number // pieces for number in range(pieces + 1)]
    return [whole._replace(start=start, stop=stop) for start, stop in itertools.pairwise(edges)]


def rate_limit(start: Offsets, end: Offsets, most: int) -> Offsets:
    """`end` brought nearer, so that all partitions together have about `most` new offsets, each its share of them.

    Every partition with new records gets at least one offset.  `start` names every partition of `end`.
    """
    sizes = {at: end[at] - start[at] for at in end if end[at] > start[at]}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    limited = dict(end)
    for at, size in sizes.items():
        share = most * size / total
        limited[at] = min(end[at], start[at] + max(int(share), 1))
    return limited
