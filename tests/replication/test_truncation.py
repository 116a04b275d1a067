"""What a follower cuts off its log before it fetches: by epochs, by answers that have none, by the high watermark."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from kbroker.cluster.client import NodeClient
from kbroker.cluster.protocol_version import PROTOCOL_VERSIONS
from kbroker.config import LogConfig
from kbroker.metadata.image import PartitionImage
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.fetcher import FetcherSettings, ReplicaFetcher
from kbroker.replication.partition import Partition
from kbroker.schemas import wire
from kbroker.storage.log.message_set_validator import validate_records
from kbroker.storage.log.unified_log import UnifiedLog
from tests.replication.spoken_for import LEADER, OURS, SpokenFor, rows_of, until
from tests.storage.batches import START_MS, append, batch, open_log

OLD = LogConfig(message_format_version="0.10.2")


def append_old(log: UnifiedLog, value: bytes) -> None:
    """A message of magic 1, which nobody has said is committed."""
    analyzed = validate_records(batch([value]), OLD, START_MS, log_end_offset=log.log_end_offset)
    assert analyzed is not None
    log.append_as_leader(analyzed.view, 0, analyzed=analyzed)


def replica_of(log: UnifiedLog) -> Partition:
    image = PartitionImage(0, LEADER, 5, (LEADER, OURS), (LEADER,))
    return Partition("t", 0, bytes(15) + b"\1", log, OURS, image, FetchPurgatory(asyncio.get_running_loop()))


def settings_of(release: str) -> FetcherSettings:
    return FetcherSettings(OURS, PROTOCOL_VERSIONS[release], backoff_seconds=0.02)


def fetcher_with(leader: SpokenFor, release: str) -> ReplicaFetcher:
    client = cast("NodeClient", leader)
    return ReplicaFetcher(asyncio.get_running_loop(), client, lambda: settings_of(release), lambda: 7)


def fetches(leader: SpokenFor) -> list[Any]:
    return [row for each in leader.asked if isinstance(each, wire.FetchRequest) for row in rows_of(each)]


async def nothing(request: Any) -> Any:
    """A leader that has nothing new to say."""
    if isinstance(request, wire.FetchRequest):
        await asyncio.sleep(0.01)
        return wire.FetchResponse(session_id=0)
    raise AssertionError(f"nobody should ask: {request}")


@pytest.mark.parametrize("release", ["2.6", "2.7", "3.9"])
def test_a_log_without_epochs_begins_an_epoch_at_its_high_watermark(release: str, tmp_path: Path) -> None:
    """A former leader of a topic in an old format would join the ISR with records of its own in the place of others
    that were acknowledged to acks=all."""

    async def scenario() -> None:
        log = open_log(tmp_path, OLD)
        for value in (b"one", b"two", b"mine"):
            append_old(log, value)
        log.maybe_increment_high_watermark(2)
        leader = SpokenFor(nothing)
        fetcher = fetcher_with(leader, release)
        fetcher.add(replica_of(log))
        await until(lambda: bool(fetches(leader)))
        assert fetches(leader)[0].fetch_offset == log.log_end_offset == 2
        fetcher.close()

    uvloop.run(scenario())


def test_what_came_in_an_epoch_is_not_cut_when_its_fetcher_changes(tmp_path: Path) -> None:
    """A change of num.replica.fetchers would take from an in-sync replica what its leader has committed by now."""

    async def scenario() -> None:
        log = open_log(tmp_path, OLD)
        partition = replica_of(log)
        leader = SpokenFor(nothing)
        first, second = fetcher_with(leader, "3.9"), fetcher_with(leader, "3.9")
        first.add(partition)
        await until(lambda: bool(fetches(leader)))
        source = open_log(tmp_path / "source", OLD)
        append_old(source, b"new")
        partition.append_from_leader((tmp_path / "source" / f"{0:020d}.log").read_bytes(), 0, 0)
        first.remove(partition.topic_partition)
        second.add(partition)
        await until(lambda: fetches(leader)[-1].fetch_offset == 1)
        assert log.log_end_offset == 1
        first.close()
        second.close()

    uvloop.run(scenario())


@pytest.mark.parametrize(("leaders_end", "kept"), [(3, 3), (5, 5), (9, 5)])
def test_an_answer_without_an_epoch_says_where_the_leaders_log_ends(
    leaders_end: int, kept: int, tmp_path: Path
) -> None:
    """With inter.broker.protocol.version 0.11 to 1.1 a replica would drop, at each change of its leader, what is behind
    its high watermark, and lack records that were acknowledged if it is elected then."""

    async def scenario() -> None:
        log = open_log(tmp_path)
        for each in range(5):
            log.append_as_leader(batch([b"%d" % each]), 4)
        log.maybe_increment_high_watermark(2)

        async def answer(request: Any) -> Any:
            if isinstance(request, wire.FetchRequest):
                return await nothing(request)
            response = wire.OffsetForLeaderEpochResponse
            row = response.EpochEndOffset(partition=0, end_offset=leaders_end)
            return response(topics=[response.OffsetForLeaderTopicResult(topic="t", partitions=[row])])

        leader = SpokenFor(answer)
        fetcher = fetcher_with(leader, "1.1")
        fetcher.add(replica_of(log))
        await until(lambda: bool(fetches(leader)))
        assert fetches(leader)[0].fetch_offset == log.log_end_offset == kept
        fetcher.close()

    uvloop.run(scenario())


def test_a_leader_that_has_forgotten_its_epochs_is_followed(tmp_path: Path) -> None:
    """A topic whose format went back to an older one would have a follower that asks in a loop, never in sync."""

    async def scenario() -> None:
        log = open_log(tmp_path)
        for each in range(3):
            log.append_as_leader(batch([b"%d" % each]), 4)
        log.maybe_increment_high_watermark(2)
        partition = replica_of(log)

        async def answer(request: Any) -> Any:
            if isinstance(request, wire.ListOffsetsRequest):
                response = wire.ListOffsetsResponse
                end = 7 if rows_of(request)[0].timestamp == -1 else 0
                row = response.ListOffsetsPartitionResponse(partition_index=0, offset=end)
                return response(topics=[response.ListOffsetsTopicResponse(name="t", partitions=[row])])
            if rows_of(request)[0].last_fetched_epoch < 0:
                return await nothing(request)
            data = wire.FetchResponse.PartitionData(error_code=1, high_watermark=-1)
            topic = wire.FetchResponse.FetchableTopicResponse(topic_id=partition.topic_id, partitions=[data])
            return wire.FetchResponse(session_id=0, responses=[topic])

        leader = SpokenFor(answer)
        fetcher = fetcher_with(leader, "3.9")
        fetcher.add(partition)
        await until(lambda: fetches(leader)[-1:] != [] and fetches(leader)[-1].last_fetched_epoch < 0)
        assert fetches(leader)[-1].fetch_offset == log.log_end_offset == 2
        fetcher.close()

    uvloop.run(scenario())


def test_a_leader_notes_no_epoch_where_its_format_has_none(tmp_path: Path) -> None:
    """A leader that is followed next would name an epoch that says nothing of its records."""
    old, new = open_log(tmp_path / "old", OLD), open_log(tmp_path / "new")
    for log in (old, new):
        log.assign_leader_epoch(7)
    assert (old.latest_epoch, new.latest_epoch) == (-1, 7)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [OLD, LogConfig()], ids=["old", "new"])
def test_epochs_that_an_old_record_ended_stay_forgotten_after_a_start(
    config: LogConfig, clean: bool, tmp_path: Path
) -> None:
    """A replica would hold records without an epoch against its leader's as if they were of the last one known."""
    log = open_log(tmp_path)
    append(log, batch([b"new"]), leader_epoch=3)
    log.config = replace(config, message_format_version="0.10.2")
    append_old(log, b"old")
    assert log.latest_epoch == -1
    log.close(clean=clean)
    again = open_log(tmp_path, config, clean=clean)
    assert (again.log_end_offset, again.latest_epoch) == (2, -1)
    again.config = LogConfig()
    append(again, batch([b"newer"]), leader_epoch=4)
    again.close(clean=False)
    assert open_log(tmp_path, config).leader_epoch_cache.entries == [(4, 2)]
