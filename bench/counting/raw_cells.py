"""Produces, fetches and what every client asks, by the frames that the load generator sends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from bench import frames
from bench.cell import SMALL_BATCH_RECORDS, SMALL_RECORD_BYTES
from bench.counting.counted import Counted, Serve
from bench.counting.machine import UnansweredError
from kbroker.schemas import wire

ONE_MB = 1 << 20
SESSION_PARTITIONS = 100


def produce(
    records: int = 1, codec: str = "none", acks: int = 1, replicas: Sequence[int] = ()
) -> Callable[[Counted], Serve]:
    """One batch of so many records to one partition."""

    def prepare(counted: Counted) -> Serve:
        topic = counted.topic(replicas=replicas)
        batch = frames.batch(records, SMALL_RECORD_BYTES, codec)
        return counted.repeated(frames.produce(topic, 0, batch, acks), frames.produce_layout(topic).error_at)

    return prepare


def produce_to(partitions: int) -> Callable[[Counted], Serve]:
    """One record to each of so many partitions of a topic, in one request."""

    def prepare(counted: Counted) -> Serve:
        topic = counted.topic(partitions)
        batch = frames.batch(1, SMALL_RECORD_BYTES)
        row = wire.ProduceRequest.PartitionProduceData
        rows = [row(index=index, records=batch) for index in range(partitions)]
        named = wire.ProduceRequest.TopicProduceData(name=topic, partition_data=rows)
        request = wire.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[named])
        for each in counted.ask(request, 9).responses[0].partition_responses:
            if each.error_code:
                raise UnansweredError(f"partition {each.index} has error {each.error_code}")
        return counted.repeated_request(request, 9)

    return prepare


def fetch(max_bytes: int) -> Callable[[Counted], Serve]:
    """So much of a partition, outside of a session."""

    def prepare(counted: Counted) -> Serve:
        topic = counted.topic()
        filling = frames.produce(topic, 0, frames.batch(SMALL_BATCH_RECORDS, SMALL_RECORD_BYTES), 1)
        for _ in range(max_bytes // len(filling) + 2):
            counted.send(filling)
        return counted.repeated(frames.fetch(topic, 0, max_bytes), frames.fetch_layout(topic).error_at)

    return prepare


def fetch_in_session(counted: Counted) -> Serve:
    """A session of many partitions, of which one has news each time."""
    topic, version = counted.topic(SESSION_PARTITIONS), 12
    row = wire.FetchRequest.FetchPartition

    def request(epoch: int, session: int, rows: Sequence[wire.FetchRequest.FetchPartition]) -> wire.FetchRequest:
        named = [wire.FetchRequest.FetchTopic(topic=topic, partitions=list(rows))] if rows else []
        return wire.FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=ONE_MB,
            session_id=session,
            session_epoch=epoch,
            topics=named,
        )

    def at(index: int, offset: int) -> wire.FetchRequest.FetchPartition:
        return row(
            partition=index,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=ONE_MB,
        )

    session = counted.ask(request(0, 0, [at(index, 1) for index in range(SESSION_PARTITIONS)]), version).session_id
    epochs, offsets = itertools.count(1), itertools.count(1)
    written = wire.ProduceRequest.TopicProduceData(name=topic)
    news = wire.ProduceRequest.PartitionProduceData(index=7, records=frames.batch(1, SMALL_RECORD_BYTES))
    written.partition_data = [news]
    produced = wire.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[written])

    def serve() -> None:
        counted.uncounted(produced, 9)
        answer = counted.ask(request(next(epochs), session, [at(7, next(offsets))]), version)
        if answer.error_code or len(answer.responses) != 1:
            raise UnansweredError(f"error {answer.error_code}, {len(answer.responses)} topics")

    return serve


def metadata(counted: Counted) -> Serve:
    """Of one topic."""
    return counted.repeated(frames.metadata(counted.topic()))


def api_versions(counted: Counted) -> Serve:
    """What each connection of a client begins with."""
    return counted.repeated(frames.api_versions(), 8)


def list_latest(counted: Counted) -> Serve:
    """Where a partition ends."""
    return counted.repeated(frames.list_latest(counted.topic(), 0))
