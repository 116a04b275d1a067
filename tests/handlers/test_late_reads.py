"""A fetch of a partition whose records come later: a stand-in for remote storage has them once a test says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kbroker._fast.log.log_fields import LateRead, RecordSource
from kbroker.errors import OffsetOutOfRangeError
from kbroker.handlers.records import fetch as fetch_handler
from kbroker.replication.delayed_fetch import FetchPurgatory, FetchWait
from kbroker.storage.log.log_values import FetchData, FetchIsolation
from kbroker.types import uuid_to_text
from tests.broker.client import Batch, Client, fetch_values
from tests.replication.led_partition import LONG_MS, Cluster, until

TOPIC, COLD, HOT = "cold-and-hot", 0, 1
SHORT_MS = 60
SIZE = len(Batch().encoded())
OLD_SIZE = 42
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
# A version of the older message formats, and one that is read from the request's bytes.
OLD, DIRECT = 3, 11


class StandIn:
    """Remote storage that has the first segment of one log."""

    def __init__(self, cluster: Cluster, wait_ms: int) -> None:
        assert cluster.broker.services is not None
        self.manager = cluster.broker.services.replica_manager
        self.wait_ms = wait_ms
        self.late: LateRead | None = None
        self.error: Exception | None = None
        self.is_there = False
        log = self.manager.topics[TOPIC][COLD].log
        log.roll()
        self.kept = log.read(0, 1 << 20, FetchIsolation.HIGH_WATERMARK, True)
        log.local.environment.tier = self
        log.maybe_increment_local_log_start_offset(log.log_end_offset)
        assert log.delete_segments_below(log.log_end_offset) == 1

    def read_into(self, data: FetchData, *_: Any) -> None:
        if self.error is not None:
            raise self.error
        if self.is_there:
            data.records, data.size = self.kept.records, self.kept.size
            return
        if self.late is None or self.late.is_met:
            self.late = LateRead(self.wait_ms)
        data.late = self.late

    def bring(self) -> None:
        assert self.late is not None
        self.is_there = True
        self.manager.purgatory.meet(self.late)

    def has_let_go(self) -> bool:
        return (
            len(self.manager.purgatory) == 0
            and not any(each.waiting for each in self.manager.topics[TOPIC].values())
            and (self.late is None or not self.late.waiting)
        )


def run(directory: Path, scenario: Callable[[Cluster, Client, StandIn], Awaitable[None]], wait_ms: int) -> None:
    async def main() -> None:
        cluster = Cluster(directory, {"share.coordinator.state.topic.num.partitions": "1"})
        await cluster.broker.start()
        try:
            client = await cluster.client()
            await asyncio.to_thread(client.create, TOPIC, 2)
            for partition in (COLD, HOT):
                await asyncio.to_thread(client.write, TOPIC, Batch(), partition=partition)
            stand_in = StandIn(cluster, wait_ms)
            await scenario(cluster, client, stand_in)
            await until(stand_in.has_let_go)
            client.close()
        finally:
            await cluster.broker.stop()

    uvloop.run(main())


def values(hot_offset: int | None = None, **more: Any) -> dict[str, Any]:
    """A fetch of the cold partition, and of the other one from some offset on."""
    asked = fetch_values(TOPIC, partition=COLD, **more)
    if hot_offset is not None:
        row = {"partition": HOT, "fetch_offset": hot_offset, "partition_max_bytes": 1 << 20}
        asked["topics"][0]["partitions"].append(row)
    return asked


def sizes(answer: Any) -> dict[int, int]:
    """Bytes of each partition that is named; none has an error, and each the partition's own first offset."""
    assert answer.error_code == 0
    rows = [row for topic in answer.responses for row in topic.partitions]
    assert {row.error_code for row in rows} <= {0}
    assert {getattr(row, "log_start_offset", 0) for row in rows} <= {0, -1}
    return {row.partition_index: len(row.records or b"") for row in rows}


async def looked_at(stand_in: StandIn) -> None:
    await until(lambda: stand_in.late is not None and len(stand_in.late.waiting) == 1)


@pytest.fixture(name="way", params=["old", "direct", "session", "in slices"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "in slices":
        monkeypatch.setattr(fetch_handler, "_takes_long", lambda *_: True)
    return str(request.param)


def version_of(way: str) -> int:
    return OLD if way == "old" else DIRECT


def size_of(way: str) -> int:
    return OLD_SIZE if way == "old" else SIZE


def opening(way: str) -> dict[str, int]:
    """A fetch that begins a session is decoded, and read by its targets."""
    return {"session_epoch": 0} if way in ("session", "in slices") else {"session_epoch": -1}


@pytest.mark.parametrize("wait_ms", [0, LONG_MS])
@pytest.mark.parametrize("least", [0, 1, 1 << 20])
def test_a_fetch_is_answered_when_its_records_are_there(tmp_path: Path, way: str, wait_ms: int, least: int) -> None:
    """A consumer of old records would ask in a tight loop, or wait for its deadline with the records at hand."""

    async def scenario(_: Cluster, client: Client, stand_in: StandIn) -> None:
        client.send("Fetch", version_of(way), values(wait_ms=wait_ms, min_bytes=least, **opening(way)))
        await looked_at(stand_in)
        assert client.silent()
        stand_in.bring()
        assert sizes(await asyncio.to_thread(client.answer, "Fetch", version_of(way))) == {COLD: size_of(way)}

    run(tmp_path, scenario, LONG_MS)


@pytest.mark.parametrize("wait_ms", [0, LONG_MS])
def test_a_fetch_is_answered_empty_at_the_deadline(tmp_path: Path, way: str, wait_ms: int) -> None:
    """A slow store would hold a consumer's connection for ever."""

    async def scenario(_: Cluster, client: Client, stand_in: StandIn) -> None:
        began = time.monotonic()
        client.send("Fetch", version_of(way), values(wait_ms=wait_ms, **opening(way)))
        assert sizes(await asyncio.to_thread(client.answer, "Fetch", version_of(way))) == {COLD: 0}
        assert time.monotonic() - began >= SHORT_MS / 1000 * 0.9
        assert stand_in.late is not None and not stand_in.late.is_met

    run(tmp_path, scenario, SHORT_MS)


def test_hot_partitions_do_not_wait_for_a_late_one(tmp_path: Path, way: str) -> None:
    """One consumer of old records would hold up its own new ones."""

    async def scenario(_: Cluster, client: Client, __: StandIn) -> None:
        client.send("Fetch", version_of(way), values(0, wait_ms=LONG_MS, **opening(way)))
        assert sizes(await asyncio.to_thread(client.answer, "Fetch", version_of(way))) == {COLD: 0, HOT: size_of(way)}

    run(tmp_path, scenario, LONG_MS)


def test_a_waiting_fetch_hears_of_hot_records_too(tmp_path: Path, way: str) -> None:
    """New records would wait until old ones are there."""

    async def scenario(cluster: Cluster, client: Client, stand_in: StandIn) -> None:
        client.send("Fetch", version_of(way), values(1, wait_ms=LONG_MS, **opening(way)))
        await looked_at(stand_in)
        writer = await cluster.client()
        await asyncio.to_thread(writer.write, TOPIC, Batch(), partition=HOT)
        assert sizes(await asyncio.to_thread(client.answer, "Fetch", version_of(way))) == {COLD: 0, HOT: size_of(way)}
        writer.close()

    run(tmp_path, scenario, LONG_MS)


def test_a_read_that_fails_is_answered_at_once(tmp_path: Path, way: str) -> None:
    """A missing object would look like a slow store."""

    async def scenario(_: Cluster, client: Client, stand_in: StandIn) -> None:
        client.send("Fetch", version_of(way), values(wait_ms=LONG_MS, **opening(way)))
        await looked_at(stand_in)
        stand_in.error = OffsetOutOfRangeError()
        stand_in.bring()
        answer = await asyncio.to_thread(client.answer, "Fetch", version_of(way))
        assert answer.responses[0].partitions[0].error_code == OffsetOutOfRangeError.code

    run(tmp_path, scenario, LONG_MS)


def test_a_client_that_leaves_ends_its_wait(tmp_path: Path, way: str) -> None:
    """Each consumer that gives up would leave its fetch behind, for as long as the store takes."""

    async def scenario(cluster: Cluster, _: Client, stand_in: StandIn) -> None:
        other = await cluster.client()
        other.send("Fetch", version_of(way), values(wait_ms=0, **opening(way)))
        await looked_at(stand_in)
        other.reset()
        await until(stand_in.has_let_go)

    run(tmp_path, scenario, LONG_MS)


def test_a_session_goes_on_behind_a_late_read(tmp_path: Path) -> None:
    """An incremental fetch would leave the late partition out for good."""

    async def scenario(_: Cluster, client: Client, stand_in: StandIn) -> None:
        client.send("Fetch", DIRECT, values(0, wait_ms=LONG_MS, session_epoch=0))
        opened = await asyncio.to_thread(client.answer, "Fetch", DIRECT)
        again = values(1, wait_ms=LONG_MS, session_id=opened.session_id, session_epoch=1)
        client.send("Fetch", DIRECT, again)
        await looked_at(stand_in)
        stand_in.bring()
        assert sizes(await asyncio.to_thread(client.answer, "Fetch", DIRECT)) == {COLD: SIZE}

    run(tmp_path, scenario, LONG_MS)


@pytest.mark.parametrize("comes", [True, False])
def test_a_share_group_waits_for_a_late_read(tmp_path: Path, comes: bool) -> None:
    """A member of a share group would get one empty answer after the other, without a wait."""

    async def scenario(cluster: Cluster, client: Client, stand_in: StandIn) -> None:
        assert cluster.broker.services is not None
        topic_id = cluster.broker.services.metadata_cache.image.topics[TOPIC].topic_id
        config = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
        resource = {"resource_type": 32, "resource_name": "g", "configs": config}
        await asyncio.to_thread(client.ask, "IncrementalAlterConfigs", 1, {"resources": [resource]})
        fetch: dict[str, Any] = {
            "group_id": "g",
            "member_id": MEMBER,
            "share_session_epoch": 0,
            "max_wait_ms": 0 if comes else LONG_MS,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            "topics": [{"topic_id": topic_id, "partitions": [{"partition_index": COLD}]}],
        }
        member = {"group_id": "g", "member_id": MEMBER, "member_epoch": 0, "subscribed_topic_names": [TOPIC]}
        for key_type, key in ((0, "g"), (2, f"g:{uuid_to_text(topic_id)}:{COLD}")):
            asked = {"key_type": key_type, "coordinator_keys": [key]}
            while (await asyncio.to_thread(client.ask, "FindCoordinator", 6, asked)).coordinators[0].error_code:
                await asyncio.sleep(0.01)
        while (await asyncio.to_thread(client.ask, "ShareGroupHeartbeat", 1, member)).error_code:
            await asyncio.sleep(0.01)
        # The first fetches read the share-partition's state.
        for epoch in range(1_000):
            client.send("ShareFetch", 1, fetch | {"share_session_epoch": epoch})
            answered = asyncio.create_task(asyncio.to_thread(client.answer, "ShareFetch", 1))
            await until(lambda: answered.done() or (stand_in.late is not None and len(stand_in.late.waiting) == 1))  # noqa: B023
            if stand_in.late is not None:
                break
        if comes:
            stand_in.bring()
        answer = await answered
        rows = [row for topic in answer.responses for row in topic.partitions]
        found = [len(row.records) for row in rows if row.records]
        assert (answer.error_code, found) == (0, [SIZE] if comes else [])

    run(tmp_path, scenario, LONG_MS if comes else SHORT_MS)


def test_a_late_read_that_is_met_at_the_deadline_leaves_nothing_waiting() -> None:
    """The partition would have a fetch among those that wait for as long as the broker runs."""

    async def main() -> None:
        purgatory = FetchPurgatory(asyncio.get_running_loop())
        source, reads = RecordSource(), [LateRead(30), LateRead(30)]
        wait = FetchWait(purgatory, (source,), 10, lambda source: None)
        attempts = 0

        async def attempt(force: bool) -> bool:
            nonlocal attempts
            attempts += 1
            await asyncio.sleep(0)
            return wait.watch([reads[min(attempts - 1, 1)]], force)

        context: Any = SimpleNamespace(open=True, left=None)
        await wait.until(context, attempt)
        assert attempts == 2 and wait.done and not len(purgatory)
        assert not source.waiting and not any(each.waiting for each in reads)

    uvloop.run(main())
