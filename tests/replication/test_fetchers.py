"""The fetchers of a broker without a leader that answers, or with one that a test speaks for.

Also of `kbroker.replication.fetchers`.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from kbroker._fast.base.slices import Slices
from kbroker.cluster.client import NodeClient, NodeError
from kbroker.cluster.protocol_version import protocol_version
from kbroker.config import BrokerConfig
from kbroker.metadata.image import PartitionImage
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.fetcher import FetcherSettings, ReplicaFetcher
from kbroker.replication.fetcher_manager import FetcherManager
from kbroker.replication.partition import Partition
from kbroker.replication.replication_traffic import ReplicationTraffic
from kbroker.schemas import wire
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.storage.log.replicated_append import PORTION_BATCHES
from tests.replication.spoken_for import LEADER, OURS, SpokenFor, rows_of, until
from tests.storage.batches import HandClock, append, batch, environment, open_log, region_bytes
from tests.storage.full_files import FullFiles

SETTINGS = FetcherSettings(OURS, protocol_version("3.9-IV0"), backoff_seconds=0.02)


def followed(directory: Path, index: int = 0, files: FullFiles | None = None) -> Partition:
    log = open_log(directory / f"t-{index}", env=environment(files) if files is not None else environment())
    image = PartitionImage(index, LEADER, 0, (LEADER, OURS), (LEADER,))
    return Partition("t", index, bytes(15) + b"\1", log, OURS, image, FetchPurgatory(asyncio.get_running_loop()))


def fetcher_of(
    leader: SpokenFor, traffic: ReplicationTraffic | None = None, slices: Slices | None = None
) -> ReplicaFetcher:
    loop, client = asyncio.get_running_loop(), cast("NodeClient", leader)
    pace = slices.pace if slices is not None else lambda: None
    return ReplicaFetcher(loop, client, lambda: SETTINGS, lambda: 7, traffic=traffic, pace=pace)


def test_a_leader_that_is_away_is_complained_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log of a broker would grow by five lines a second for each leader that is down."""
    caplog.set_level(logging.INFO, "kbroker.replication.fetcher")

    async def scenario() -> None:
        is_away = True

        async def answer(_request: Any) -> Any:
            if is_away:
                raise NodeError("refused")
            return wire.FetchResponse(session_id=1)

        leader = SpokenFor(answer)
        fetcher = fetcher_of(leader)
        fetcher.add(followed(tmp_path))
        await until(lambda: len(leader.asked) > 5)
        assert [row.failures > 0 for row in fetcher.rows()] == [True]
        is_away = False
        await until(lambda: any("fetches again" in each.message for each in caplog.records))
        assert [row.failures for row in fetcher.rows()] == [0]
        fetcher.close()

    uvloop.run(scenario())
    assert sum("cannot fetch" in each.message for each in caplog.records) == 1


def test_a_follower_asks_for_nothing_that_its_throttle_holds_back(tmp_path: Path) -> None:
    """follower.replication.throttled.rate would bound nothing, or a follower would ask in a loop while it may not."""

    async def scenario() -> None:
        leader_log = open_log(tmp_path / "leader")
        for each in range(20):
            append(leader_log, batch([b"%d" % each * 3000]))
        clock = HandClock()
        config = BrokerConfig.from_mapping({"log.dirs": "/", "follower.replication.throttled.rate": "100"})
        traffic = ReplicationTraffic(config, clock.monotonic)
        partition = followed(tmp_path)
        partition.follower_throttled = True

        async def answer(request: Any) -> Any:
            offset = partition.log.log_end_offset
            records = region_bytes(leader_log.read(offset, 10_000, FetchIsolation.LOG_END, True))
            row = wire.FetchResponse.PartitionData(high_watermark=20, log_start_offset=0, records=records)
            topic = wire.FetchResponse.FetchableTopicResponse(topic_id=partition.topic_id, partitions=[row])
            return wire.FetchResponse(session_id=0, responses=[topic])

        leader = SpokenFor(answer)
        fetcher = fetcher_of(leader, traffic)
        fetcher.add(partition)
        await until(lambda: partition.log.log_end_offset > 0 and traffic.follower.wait_ms() > 0)
        asked, end = len(leader.asked), partition.log.log_end_offset
        for _ in range(50):
            await asyncio.sleep(0)
        assert (len(leader.asked), partition.log.log_end_offset) == (asked, end)
        assert [row.lag for row in fetcher.rows()] == [20 - end]
        # Nobody waits for long where the throttle is lifted.
        traffic.follow(BrokerConfig.from_mapping({"log.dirs": "/"}))
        await until(lambda: partition.log.log_end_offset == 20)
        assert traffic.bytes_in >= leader_log.size_bytes
        fetcher.close()

    uvloop.run(scenario())


def test_a_follower_whose_disk_is_full_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """A full disk would end replication until a restart, or leave half of what came in the log."""

    async def scenario() -> None:
        leader_log = open_log(tmp_path / "leader")
        for each in range(8):
            append(leader_log, batch([b"%d" % each * 300]), leader_epoch=each // 3)
        files = FullFiles()
        partition = followed(tmp_path, files=files)

        async def answer(request: Any) -> Any:
            offset = partition.log.log_end_offset
            limit = 500 if offset == 0 else 1 << 20
            records = region_bytes(leader_log.read(offset, limit, FetchIsolation.LOG_END, True))
            row = wire.FetchResponse.PartitionData(high_watermark=8, log_start_offset=0, records=records)
            topic = wire.FetchResponse.FetchableTopicResponse(topic_id=partition.topic_id, partitions=[row])
            return wire.FetchResponse(session_id=0, responses=[topic] if rows_of(request) else [])

        files.left = 1000
        leader = SpokenFor(answer)
        fetcher = fetcher_of(leader)
        fetcher.add(partition)
        await until(lambda: any(row.failures > 1 for row in fetcher.rows()))
        end = partition.log.log_end_offset
        assert 0 < end < 8 and partition.log.latest_epoch == leader_log.leader_epoch_cache.epoch_for_offset(end - 1)
        files.left = None
        await until(lambda: partition.log.log_end_offset == 8)
        everything = region_bytes(leader_log.read(0, 1 << 20, FetchIsolation.LOG_END, True))
        assert region_bytes(partition.log.read(0, 1 << 20, FetchIsolation.LOG_END, True)) == everything
        fetcher.close()

    uvloop.run(scenario())


def test_a_changed_number_of_fetchers_moves_what_is_followed(tmp_path: Path) -> None:
    """num.replica.fetchers would need a restart, or partitions be copied by two fetchers or by none."""

    async def scenario() -> None:
        async def refuse(*_: Any) -> Any:
            raise ConnectionRefusedError

        transport: Any = SimpleNamespace(connect=refuse)
        cache: Any = SimpleNamespace(image=SimpleNamespace(brokers={}))
        manager = FetcherManager(
            asyncio.get_running_loop(), transport, cache, lambda: "PLAINTEXT", lambda: SETTINGS, lambda: 7
        )
        partitions = [followed(tmp_path, each) for each in range(8)]
        for partition in partitions:
            manager.follow(partition)
        assert len(manager) == 1
        for count in (4, 2):
            manager.change_count(count)
            held = {
                number: {each.index for each in fetcher.partitions()}
                for (_, number), fetcher in manager._fetchers.items()
                if len(fetcher)
            }
            assert len(held) == count
            assert sorted(index for each in held.values() for index in each) == list(range(8))
        assert manager.figures().failed_partitions in range(9)
        manager.close()

    uvloop.run(scenario())


@pytest.mark.parametrize("epoch", [0, 1], ids=["the same leader", "another leader amid it"])
def test_very_many_batches_of_a_leader_are_taken_in_portions(epoch: int, tmp_path: Path) -> None:
    """A follower far behind would hold everything else up, or go on with records of a leader that is none any more."""
    count = 3 * PORTION_BATCHES

    async def scenario() -> None:
        leader_log = open_log(tmp_path / "leader")
        for each in range(count):
            append(leader_log, batch([b"%d" % each]))
        records = region_bytes(leader_log.read(0, 1 << 20, FetchIsolation.LOG_END, True))
        partition = followed(tmp_path)
        ends: list[int] = []

        async def answer(request: Any) -> Any:
            asked = [row for row in rows_of(request) if row.fetch_offset == 0 and partition.leader_epoch == 0]
            row = wire.FetchResponse.PartitionData(high_watermark=count, log_start_offset=0, records=records)
            topic = wire.FetchResponse.FetchableTopicResponse(topic_id=partition.topic_id, partitions=[row])
            return wire.FetchResponse(session_id=0, responses=[topic] if asked else [])

        def look() -> None:
            ends.append(partition.log.log_end_offset)
            if ends[-1] == PORTION_BATCHES and epoch:
                partition.follow(PartitionImage(0, 3, epoch, (LEADER, OURS, 3), (3,)))
            if ends[-1] < count:
                asyncio.get_running_loop().call_soon(look)

        loop = asyncio.get_running_loop()
        fetcher = fetcher_of(SpokenFor(answer), slices=Slices(loop, 0))
        fetcher.add(partition)
        look()
        if epoch:
            await until(lambda: PORTION_BATCHES in ends and partition.leader_epoch == epoch)
            for _ in range(20):
                await asyncio.sleep(0)
            assert partition.log.log_end_offset == PORTION_BATCHES
        else:
            await until(lambda: partition.log.log_end_offset == count)
            assert set(ends) >= {PORTION_BATCHES, 2 * PORTION_BATCHES}
            copied = region_bytes(partition.log.read(0, 1 << 20, FetchIsolation.LOG_END, True))
            assert copied == records
        fetcher.close()
        partition.follow(PartitionImage(0, 3, 2, (LEADER, OURS, 3), (3,)))
        ends.append(count)

    uvloop.run(scenario())
