"""An append is not a commit: what waits for replicas, over the wire, with a follower that a test moves by hand.

A broker runs in this process; its metadata say that a second broker has a replica of the topic, and is in sync.  That
one is a client here, which fetches with a replica id when the test says so.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaStorageError
from kbroker.replication.partition import Role
from tests.broker.client import Batch, fetch_values, produce_values
from tests.replication.led_partition import (
    LONG_MS,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER,
    OURS,
    THEIRS,
    TIMED_OUT,
    TOPIC,
    Cluster,
    run,
    until,
)

SETTINGS = [{}, {"kbroker.fsync": "commit"}]
# One batch takes the fast path; two in one request take the other.
REQUESTS = {
    "one partition": produce_values(TOPIC, Batch(), timeout_ms=LONG_MS),
    "with a transaction's field": produce_values(TOPIC, Batch(), timeout_ms=LONG_MS, transactional_id=""),
}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("request_values", REQUESTS.values(), ids=REQUESTS)
def test_acks_all_and_consumers_wait_for_a_follower_that_lags(
    tmp_path: Path, request_values: dict[str, Any], settings: dict[str, str]
) -> None:
    """A record would be acknowledged, and read, that is lost with this machine."""

    async def scenario(cluster: Cluster) -> None:
        producer, follower, consumer = [await cluster.client() for _ in range(3)]
        producer.send("Produce", 9, request_values)
        found = await asyncio.to_thread(
            follower.fetch, TOPIC, 11, offset=0, replica_id=THEIRS, wait_ms=LONG_MS, min_bytes=1
        )
        assert len(found.records) > 0, "the follower gets what is not committed"
        seen = await asyncio.to_thread(consumer.fetch, TOPIC)
        assert (seen.high_watermark, seen.records) == (0, b"") and producer.silent()
        consumer.send("Fetch", 11, fetch_values(TOPIC, wait_ms=LONG_MS))
        await cluster.follow(follower, 1)
        answer = await asyncio.to_thread(producer.answer, "Produce", 9)
        row = answer.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, 0)
        woken = (await asyncio.to_thread(consumer.answer, "Fetch", 11)).responses[0].partitions[0]
        assert woken.high_watermark == 1 and len(woken.records) == len(found.records)
        for client in (producer, follower, consumer):
            client.close()

    run(tmp_path, scenario, **settings)


def test_reads_below_the_high_watermark_go_on_while_a_follower_lags(tmp_path: Path) -> None:
    """A consumer would read what is not committed, or nothing at all while there is something that is not."""

    async def scenario(cluster: Cluster) -> None:
        client, follower = await cluster.client(), await cluster.client()
        for _ in range(5):
            await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=1)
        await cluster.follow(follower, 3)
        for offset in (0, 2, 3, 4):
            found = await asyncio.to_thread(client.fetch, TOPIC, offset=offset)
            batch_bytes = len(Batch().encoded())
            assert (found.error_code, found.high_watermark) == (0, 3)
            assert len(found.records) == max(0, 3 - offset) * batch_bytes
        client.close()
        follower.close()

    run(tmp_path, scenario)


def test_acks_all_times_out_when_the_follower_does_not_come(tmp_path: Path) -> None:
    """A producer would hang; or be told that nothing was stored, and send it again as something new."""

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        for values in (produce_values(TOPIC, Batch(), timeout_ms=1), {**REQUESTS["with a transaction's field"]}):
            answer = await asyncio.to_thread(client.ask, "Produce", 9, {**values, "timeout_ms": 1})
            assert answer.responses[0].partition_responses[0].error_code == TIMED_OUT
        assert cluster.partition().log.log_end_offset == 2 and cluster.partition().log.high_watermark == 0
        client.close()

    run(tmp_path, scenario)


def test_one_acknowledgement_does_not_wait_for_followers(tmp_path: Path) -> None:
    """acks=1 asks for the leader alone."""

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        answer = await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=1, timeout_ms=LONG_MS)
        assert (answer.error_code, cluster.partition().log.high_watermark) == (0, 0)
        client.close()

    run(tmp_path, scenario)


@pytest.mark.parametrize("request_values", REQUESTS.values(), ids=REQUESTS)
def test_who_waits_for_a_leader_that_steps_down_is_sent_to_the_next(
    tmp_path: Path, request_values: dict[str, Any]
) -> None:
    """A producer would wait for its time-out at a broker that cannot commit any more."""

    async def scenario(cluster: Cluster) -> None:
        producer = await cluster.client()
        producer.send("Produce", 9, request_values)
        await until(lambda: cluster.partition().log.log_end_offset == 1)
        cluster.place(leader=THEIRS, leader_epoch=1)
        answer = await asyncio.to_thread(producer.answer, "Produce", 9)
        assert answer.responses[0].partition_responses[0].error_code == NOT_LEADER
        assert cluster.broker.services is not None
        (followed,) = cluster.broker.services.replica_manager.followed.values()
        assert followed.role is Role.FOLLOWER and followed.log.high_watermark == 0
        followed.append_from_leader(b"", 1, 0)
        cluster.place(leader=OURS, leader_epoch=2, isr=(OURS,))
        assert cluster.partition() is followed and followed.log.high_watermark == 1
        producer.close()

    run(tmp_path, scenario)


def test_a_follower_that_leaves_the_isr_is_not_waited_for(tmp_path: Path) -> None:
    """One dead follower would stop every producer for good."""

    async def scenario(cluster: Cluster) -> None:
        producer = await cluster.client()
        producer.send("Produce", 9, REQUESTS["one partition"])
        await until(lambda: cluster.partition().log.log_end_offset == 1)
        cluster.place(isr=(OURS,))
        answer = await asyncio.to_thread(producer.answer, "Produce", 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        producer.close()

    run(tmp_path, scenario)


def test_nothing_is_committed_below_the_least_in_sync_replicas(tmp_path: Path) -> None:
    """With min.insync.replicas=2 a record on one machine alone would be read, and then lost (KIP-966)."""

    async def scenario(cluster: Cluster) -> None:
        client, follower = await cluster.client(), await cluster.client()
        await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=1)
        cluster.place(isr=(OURS,))
        assert cluster.partition().log.high_watermark == 0
        refused = await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=-1)
        assert refused.error_code == NOT_ENOUGH_REPLICAS
        cluster.place(isr=(OURS, THEIRS))
        await cluster.follow(follower, 1)
        assert cluster.partition().log.high_watermark == 1
        client.close()
        follower.close()

    run(tmp_path, scenario, **{"min.insync.replicas": "2"})


def test_a_commit_of_offsets_waits_for_the_replicas_of_its_partition(tmp_path: Path) -> None:
    """A group would go on behind an offset that its next coordinator has never seen."""

    async def scenario(cluster: Cluster) -> None:
        client, follower = await cluster.client(), await cluster.client()
        commit = {
            "group_id": "g",
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 7}]}],
        }
        first = await asyncio.to_thread(client.ask, "OffsetCommit", 8, commit)
        assert first.topics[0].partitions[0].error_code == 0
        state = "__consumer_offsets"
        cluster.place(state, replicas=(OURS, THEIRS), isr=(OURS, THEIRS))
        end = cluster.partition(state).log.log_end_offset
        client.send("OffsetCommit", 8, commit)
        await until(lambda: cluster.partition(state).log.log_end_offset == end + 1)
        await cluster.follow(follower, end, topic=state)
        assert client.silent()
        await cluster.follow(follower, end + 1, topic=state)
        answer = await asyncio.to_thread(client.answer, "OffsetCommit", 8)
        assert answer.topics[0].partitions[0].error_code == 0
        client.close()
        follower.close()

    run(tmp_path, scenario)


def test_a_marker_that_is_not_committed_decides_no_offsets(tmp_path: Path) -> None:
    """A group would go on behind an offset of a transaction that its next coordinator takes for open."""
    state = "__consumer_offsets"

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        rows = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
        asked = {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}
        initial = {"transactional_id": "x", "transaction_timeout_ms": LONG_MS, "producer_id": -1, "producer_epoch": -1}

        async def ask(name: str, version: int, **values: Any) -> Any:
            answer = await asyncio.to_thread(client.ask, name, version, values)
            assert not getattr(answer, "error_code", 0), (name, answer)
            return answer

        async def committed() -> tuple[int, int]:
            found = await ask("OffsetFetch", 7, group_id="g", **asked, require_stable=True)
            row = found.topics[0].partitions[0]
            return row.error_code, row.committed_offset

        for key_type, key in enumerate(("g", "x")):
            await ask("FindCoordinator", 3, key=key, key_type=key_type)
        given = await ask("InitProducerId", 4, **initial)
        producer = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
        await ask("AddOffsetsToTxn", 3, transactional_id="x", group_id="g", **producer)
        await ask("TxnOffsetCommit", 3, transactional_id="x", group_id="g", **producer, topics=rows)
        assert await committed() == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        cluster.place(state, replicas=(OURS, THEIRS), isr=(OURS, THEIRS))
        partition = cluster.partition(state)
        end = partition.log.log_end_offset
        marker = {**producer, "transaction_result": True, "topics": [{"name": state, "partition_indexes": [0]}]}
        client.send("WriteTxnMarkers", 1, {"markers": [{**marker, "coordinator_epoch": 0}]})
        await until(lambda: partition.log.log_end_offset == end + 1)
        for settled in partition.take_waits():
            settled(KafkaStorageError())
        answer = await asyncio.to_thread(client.answer, "WriteTxnMarkers", 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await committed() == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        client.close()

    run(tmp_path, scenario, **{"transaction.state.log.num.partitions": "1"})


def test_a_broker_without_a_replica_may_not_fetch_as_a_follower(tmp_path: Path) -> None:
    """Any client could read what is not committed, or commit what no replica has."""

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=1)
        answer = await asyncio.to_thread(client.fetch, TOPIC, 11, offset=1, replica_id=9)
        assert (answer.error_code, cluster.partition().log.high_watermark) == (NOT_LEADER, 0)
        client.close()

    run(tmp_path, scenario)


def test_deleted_records_are_waited_for_until_each_replica_in_sync_has_deleted_them(tmp_path: Path) -> None:
    """DeleteRecords would say that records are gone that the next leader still serves."""

    async def scenario(cluster: Cluster) -> None:
        client, follower = await cluster.client(), await cluster.client()
        for _ in range(3):
            await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=1)
        await cluster.follow(follower, 3)
        rows = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 2}]}]
        late = await asyncio.to_thread(client.ask, "DeleteRecords", 2, {"topics": rows, "timeout_ms": 1})
        assert (late.topics[0].partitions[0].error_code, late.topics[0].partitions[0].low_watermark) == (TIMED_OUT, 0)
        client.send("DeleteRecords", 2, {"topics": rows, "timeout_ms": LONG_MS})
        await cluster.follow(follower, 3)
        assert client.silent()
        place = {"log_start_offset": 2}
        await asyncio.to_thread(follower.fetch, TOPIC, 11, offset=3, replica_id=THEIRS, place=place)
        answer = await asyncio.to_thread(client.answer, "DeleteRecords", 2)
        assert (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].low_watermark) == (0, 2)
        client.close()
        follower.close()

    run(tmp_path, scenario)


def test_a_follower_gets_at_once_what_its_own_fetch_has_let_in(tmp_path: Path) -> None:
    """Each append of a producer that pipelines would wait for the end of the follower's fetch, half a second."""

    async def scenario(cluster: Cluster) -> None:
        producer, follower = [await cluster.client() for _ in range(2)]
        for _ in range(2):
            producer.send("Produce", 9, REQUESTS["one partition"])
        first = await asyncio.to_thread(follower.fetch, TOPIC, 11, offset=0, replica_id=THEIRS, wait_ms=LONG_MS)
        assert len(first.records) > 0
        # It commits the first append, whose answer lets the connection's second one in.
        second = await asyncio.to_thread(
            follower.fetch, TOPIC, 11, offset=1, replica_id=THEIRS, wait_ms=LONG_MS, min_bytes=1
        )
        assert len(second.records) > 0
        for client in (producer, follower):
            client.close()

    run(tmp_path, scenario)
