"""Commits, heartbeats, a transaction and share groups: requests that keep state in the broker's own topics."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from bench import frames, group_frames
from bench.cell import SMALL_RECORD_BYTES
from bench.counting.counted import Counted, Serve, good, new_name
from bench.counting.machine import UnansweredError
from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.storage.batches import batch

TRANSACTION = 1
TRANSACTION_RECORDS = 10
GROUP_RESOURCE, SET = 32, 0
ACCEPTED = 1


def commit(offsets: int) -> Callable[[Counted], Serve]:
    """So many offsets by a client that is no member."""

    def prepare(counted: Counted) -> Serve:
        topic, group = counted.topic(offsets), counted.coordinated("group")
        layout = group_frames.commit_layout(topic, offsets)
        return counted.repeated(group_frames.commit(group, topic, range(offsets), 1_000), layout.error_at)

    return prepare


def fetch_offsets(counted: Counted) -> Serve:
    """The committed offset of one partition."""
    topic, group = counted.topic(), counted.coordinated("group")
    counted.send(group_frames.commit(group, topic, [0], 5))
    named = wire.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    return counted.repeated_request(wire.OffsetFetchRequest(group_id=group, topics=[named]), 7)


def heartbeat(counted: Counted) -> Serve:
    """By the one member of a classic group."""
    group = counted.coordinated("group")
    joining = counted.send(group_frames.join(group))
    generation, member = group_frames.joined(joining[4:])
    counted.send(group_frames.sync(group, generation, member))
    return counted.repeated(group_frames.heartbeat(group, generation, member), group_frames.HEARTBEAT_LAYOUT.error_at)


def consumer_heartbeat(counted: Counted) -> Serve:
    """By the one member of a consumer group (KIP-848), which has what it should."""
    topic, group, member = counted.topic(), counted.coordinated("group"), "member-000000000000000000"
    epoch, owned, topics = 0, {}, [topic]
    while True:
        request = group_frames.consumer_heartbeat(group, member, epoch, topics if epoch == 0 else None, owned)
        error, epoch, assigned = group_frames.read_consumer_heartbeat(counted.send(request)[4:])
        if error:
            raise UnansweredError(f"ConsumerGroupHeartbeat: error {error}")
        if assigned is not None:
            owned = assigned
        elif owned:
            break
        counted.machine.pass_time(0.1)
    return counted.repeated(
        group_frames.consumer_heartbeat(group, member, epoch), group_frames.HEARTBEAT_LAYOUT.error_at
    )


def transaction(counted: Counted) -> Serve:
    """Ten records to one partition: the partition is added, the records are written, the transaction commits."""
    topic, name = counted.topic(), counted.coordinated("transactional-id", TRANSACTION)
    found: list[Any] = []
    wanted = wire.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1,
                                        producer_epoch=-1)  # fmt: skip

    def is_known() -> bool:
        found[:] = [counted.ask(wanted, 3)]
        return found[0].error_code == ErrorCode.NONE

    counted.machine.wait_for(is_known)
    producer, epoch = found[0].producer_id, found[0].producer_epoch
    added = wire.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[wire.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    ended = wire.EndTxnRequest(transactional_id=name, producer_id=producer, producer_epoch=epoch, committed=True)
    sequences = itertools.count(0, TRANSACTION_RECORDS)

    def serve() -> None:
        records = bytes(
            batch(
                [bytes(SMALL_RECORD_BYTES)] * TRANSACTION_RECORDS,
                producer_id=producer,
                epoch=epoch,
                sequence=next(sequences),
                transactional=True,
            )
        )
        adding = counted.ask(added, 3).results_by_topic_v3_and_below[0].results_by_partition[0]
        if adding.partition_error_code:
            raise UnansweredError(f"AddPartitionsToTxn: error {adding.partition_error_code}")
        row = wire.ProduceRequest.PartitionProduceData(index=0, records=records)
        written = wire.ProduceRequest.TopicProduceData(name=topic, partition_data=[row])
        request = wire.ProduceRequest(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[written])
        good(counted.ask(request, 9).responses[0].partition_responses[0])
        good(counted.ask(ended, 3))
        counted.machine.pass_time(0.01)  # Its markers are written, and the coordinator knows that.

    return serve


def share_fetch(counted: Counted) -> Serve:
    """One record is acquired, and the one before is accepted."""
    topic, group, member = counted.topic(), new_name("share-group"), "AAAAAAAAAAAAAAAAAAAAAA"
    config = wire.IncrementalAlterConfigsRequest.AlterableConfig(
        name="share.auto.offset.reset", config_operation=SET, value="earliest"
    )
    resource = wire.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=[config]
    )
    good(counted.ask(wire.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0])
    epoch = 0

    def has_joined() -> bool:
        nonlocal epoch
        names = [topic] if epoch == 0 else None
        request = wire.ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
        )
        answer = counted.ask(request, 1)
        if answer.error_code == 0:
            epoch = answer.member_epoch
        return answer.error_code == 0 and answer.assignment is not None and bool(answer.assignment.topic_partitions)

    counted.machine.wait_for(has_joined)
    topic_id = counted.topic_id(topic)
    row, acknowledgement = wire.ShareFetchRequest.FetchPartition, wire.ShareFetchRequest.AcknowledgementBatch
    last, session = -1, 0

    def fetched() -> bool:
        nonlocal last, session
        said = [acknowledgement(first_offset=last, last_offset=last, acknowledge_types=[ACCEPTED])] if last >= 0 else []
        rows = [row(partition_index=0, acknowledgement_batches=said)] if said or session == 0 else []
        request = wire.ShareFetchRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=session,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=1,
            batch_size=1,
            topics=[wire.ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=rows)] if rows else [],
        )
        answer = good(counted.ask(request, 1))
        session += 1
        last = -1
        for each in answer.responses:
            for found in each.partitions:
                good(found)
                for acquired in found.acquired_records:
                    last = acquired.last_offset
        return last >= 0

    counted.machine.wait_for(fetched)
    one = wire.ProduceRequest.PartitionProduceData(index=0, records=frames.batch(1, SMALL_RECORD_BYTES))
    written = wire.ProduceRequest.TopicProduceData(name=topic, partition_data=[one])
    produced = wire.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[written])

    def serve() -> None:
        counted.uncounted(produced, 9)
        if not fetched():
            raise UnansweredError("no record was acquired")

    return serve
