"""The observer with its disk, over the model of the controllers: bad answers, failures, restarts.

Also of `kbroker.cluster.kraft.quorum_requests`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path

import pytest

from kbroker.cluster.kraft.batches import checked_batch
from kbroker.cluster.kraft.settings import MetadataLogSettings
from kbroker.host.garbage import left_by_requests
from kbroker.metadata.image import ConfigResource
from kbroker.metadata.metadata_record import MetadataLogError, metadata_record
from kbroker.protocol.messages import Message
from kbroker.records.batch import RecordBatchBuilder
from kbroker.schemas import wire
from tests.cluster.kraft.controllers import VOTERS, Controllers, data_batch
from tests.cluster.kraft.observing import Observing, over_model
from tests.garbage.uncollected import uncollected
from tests.storage.faulty_files import Fault, FaultyFiles

BROKERS = ConfigResource(4, "")


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def settle(controllers: Controllers, count: int = 1) -> None:
    """The leader writes, and the others have it."""
    leader = controllers.leader()
    assert leader is not None
    for _ in range(count):
        controllers.append(leader.node_id, 2)
    for _ in range(2):
        for each in VOTERS:
            controllers.replicate(each)


async def level(following: Observing, controllers: Controllers) -> None:
    """Wait until all that is committed is applied, and is right."""
    end = controllers.committed_end
    await following.until(lambda: following.metadata.applied_offset >= end - 1)
    assert following.metadata.image.configs.get(BROKERS, {}).keys() == names(controllers, end)


async def given_up(following: Observing) -> None:
    """Wait for that, and raise what it said."""
    while not following.failures:
        await asyncio.sleep(0.005)
    raise MetadataLogError(following.failures[0])


def names(controllers: Controllers, end: int) -> set[str]:
    count = sum(each.info.records_count for each in controllers.committed_batches(end) if not each.info.is_control)
    return {f"k{number:06}" for number in range(count)}


@pytest.mark.parametrize("versions", [(13, 18), (13, 17), (12, 16), (4, 14)])
def test_it_asks_in_the_version_that_controllers_have(tmp_path: Path, versions: tuple[int, int]) -> None:
    """Controllers of other releases could not be followed."""

    async def work() -> None:
        controllers = Controllers()
        settle(controllers, 5)
        following, transport = over_model(tmp_path, controllers, cluster_id="cluster")
        transport.fetch_versions = versions
        async with following:
            await following.observer.first_high_watermark()
            await level(following, controllers)
        fetches = [(version, asked) for _, version, asked in transport.asked if isinstance(asked, wire.FetchRequest)]
        version, asked = fetches[-1]
        row = asked.topics[0].partitions[0]
        assert version == versions[1]
        assert (asked.cluster_id, asked.max_wait_ms, asked.min_bytes) == ("cluster", 500, 0)
        assert (asked.replica_id if version < 15 else asked.replica_state.replica_id) == 9
        assert (row.replica_directory_id == bytes(range(16))) == (version >= 17)
        assert version < 18 or row.high_watermark == following.observer.high_watermark

    run(work())


def test_a_start_needs_no_download(tmp_path: Path) -> None:
    """Each start would wait for all of the metadata, and fail with the controllers."""

    async def work() -> None:
        controllers = Controllers()
        settle(controllers, 8)
        following, _ = over_model(tmp_path, controllers, log=MetadataLogSettings(snapshot_bytes=900))
        async with following:
            await level(following, controllers)
            settle(controllers, 8)
            await level(following, controllers)
            while following.directory.newest_snapshot is None:
                await asyncio.sleep(0.001)
            end = following.observer.log_end_offset
        again, transport = over_model(tmp_path, controllers)
        async with again:
            await again.observer.first_high_watermark()
            await level(again, controllers)
        fetched = [asked for _, _, asked in transport.asked if isinstance(asked, wire.FetchRequest)]
        assert all(asked.topics[0].partitions[0].fetch_offset >= end for asked in fetched)
        assert not any(isinstance(asked, wire.FetchSnapshotRequest) for _, _, asked in transport.asked)

    run(work())


def flip(answer: Message) -> None:
    """A byte of what it carries is another one."""
    if isinstance(answer, wire.FetchResponse):
        row = answer.responses[0].partitions[0]
        if row.records:
            row.records = bytes(row.records)[:-1] + bytes([bytes(row.records)[-1] ^ 1])  # type: ignore[arg-type]


def cut(answer: Message) -> None:
    """Not even one batch is whole."""
    if isinstance(answer, wire.FetchResponse):
        row = answer.responses[0].partitions[0]
        row.records = bytes(row.records or b"")[:40]  # type: ignore[arg-type]


def jump(answer: Message) -> None:
    """Records are missing in between."""
    if isinstance(answer, wire.FetchResponse):
        row = answer.responses[0].partitions[0]
        if row.records:
            row.records = _moved(bytes(row.records))  # type: ignore[arg-type]


def _moved(data: bytes) -> bytes:
    return (int.from_bytes(data[:8], "big") + 5).to_bytes(8, "big") + data[8:]


@pytest.mark.parametrize("damage", [flip, cut, jump])
def test_what_one_controller_garbles_is_fetched_again(
    tmp_path: Path, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad network card at a controller would end the broker, or let it act on garbage."""

    async def work() -> None:
        controllers = Controllers()
        settle(controllers, 3)
        following, transport = over_model(tmp_path, controllers)
        left = [3]

        def change(_node: int, answer: Message) -> Message:
            if left[0] and isinstance(answer, wire.FetchResponse) and answer.responses[0].partitions[0].records:
                left[0] -= 1
                damage(answer)  # type: ignore[operator]
            return answer

        transport.change = change
        async with following:
            await level(following, controllers)
        assert not left[0] and not following.failures

    with caplog.at_level(logging.WARNING):
        run(work())
    assert any("another one is asked" in each for each in caplog.messages)


def test_a_damaged_snapshot_is_fetched_again(tmp_path: Path) -> None:
    """Half a snapshot would be taken for the whole cluster."""

    async def work() -> None:
        controllers = Controllers()
        settle(controllers, 6)
        controllers.take_snapshot(VOTERS[0])
        following, transport = over_model(tmp_path, controllers)
        left = [1]

        def change(_node: int, answer: Message) -> Message:
            if left[0] and isinstance(answer, wire.FetchSnapshotResponse) and answer.topics:
                row = answer.topics[0].partitions[0]
                if row.position:
                    left[0] -= 1
                    row.unaligned_records = bytes(len(bytes(row.unaligned_records)))  # type: ignore[arg-type]
            return answer

        transport.change = change
        async with following:
            await following.observer.first_high_watermark()
            await level(following, controllers)
            assert following.directory.newest_snapshot is not None
        assert not left[0] and not following.failures

    run(work())


@pytest.mark.parametrize("kind", ["type", "version"])
def test_records_of_a_newer_kafka_end_it_with_a_word(tmp_path: Path, kind: str) -> None:
    """A broker that skips what it does not know acts on half of the metadata."""

    async def work() -> None:
        controllers = Controllers()
        leader = controllers.leader()
        assert leader is not None
        builder = RecordBatchBuilder(leader.end, partition_leader_epoch=leader.epoch)
        builder.append(None, bytes([1, 99, 0]) if kind == "type" else bytes([1, 2, 9]), 0)
        leader.batches.append(checked_batch(bytes(builder.build()), "test"))
        for each in VOTERS * 2:
            controllers.replicate(each)
        following, _ = over_model(tmp_path, controllers)
        async with following:
            with pytest.raises(Exception, match="written by a newer Kafka"):
                await following.observer.first_high_watermark()
        assert len(following.failures) == 1

    run(work())


def test_an_upgrade_beyond_what_is_known_ends_it_and_a_newer_kbroker_can_go_on(tmp_path: Path) -> None:
    """An upgrade of the cluster under a running broker would leave it with rules of before, or without its log."""

    async def work() -> None:
        controllers = Controllers()
        settle(controllers, 4)
        following, _ = over_model(tmp_path, controllers)
        async with following:
            await level(following, controllers)
            before = following.metadata.image
            leader = controllers.leader()
            assert leader is not None
            newer = metadata_record(wire.FeatureLevelRecord(name="metadata.version", feature_level=99))
            leader.batches.append(data_batch(leader.end, leader.epoch, [newer]))
            for each in VOTERS * 2:
                controllers.replicate(each)
            with pytest.raises(MetadataLogError, match=r"metadata\.version 99.*upgrade kbroker"):
                await given_up(following)
            assert following.metadata.image is before
        assert len(following.failures) == 1
        again, _ = over_model(tmp_path, controllers)
        async with again:
            with pytest.raises(Exception, match="upgrade kbroker"):
                await again.observer.first_high_watermark()
        assert following.observer.log_end_offset <= again.observer.log_end_offset == leader.end

    run(work())


def test_a_failed_disk_is_told_once(tmp_path: Path) -> None:
    """The broker would go on with a log that forgets."""

    async def work() -> None:
        controllers = Controllers()
        settle(controllers, 2)
        following, _ = over_model(tmp_path, controllers, files=FaultyFiles(9, Fault.ERROR))
        async with following:
            with pytest.raises(Exception, match="the disk of the metadata log has failed"):
                await following.observer.first_high_watermark()
        assert len(following.failures) == 1

    run(work())


@pytest.mark.parametrize("call", [9, 13, None])
def test_an_observer_that_has_ended_keeps_no_frames(tmp_path: Path, call: int | None) -> None:
    """Its tasks and the call of its disk would keep how they ended, and with that all that they had under way.

    `call`: the one of the disk that fails."""

    async def work() -> None:
        controllers = Controllers()
        settle(controllers, 2)
        following, _ = over_model(tmp_path, controllers, files=FaultyFiles(call or 0, Fault.ERROR))
        async with following:
            if call is None:
                await level(following, controllers)
            else:
                with pytest.raises(MetadataLogError):
                    await given_up(following)

    with uncollected() as left:
        run(work())
    assert not left_by_requests(left)


def test_one_that_is_cut_off_waits_for_its_controllers(tmp_path: Path) -> None:
    """An outage of the controllers would end the brokers, or have them ask in a tight loop."""

    async def work() -> None:
        controllers = Controllers()
        settle(controllers)
        following, transport = over_model(tmp_path, controllers)
        async with following:
            await level(following, controllers)
            for each in VOTERS:
                controllers.nodes[each].is_up = False
            before = len(transport.asked)
            await asyncio.sleep(1)
            assert len(transport.asked) - before < 10
            for each in VOTERS:
                controllers.nodes[each].is_up = True
            assert controllers.elect(VOTERS[1])
            settle(controllers)
            await level(following, controllers)
            assert following.observer.leader is not None
            assert following.observer.leader.node_id == VOTERS[1]

    run(work())


def test_many_batches_are_one_publication(tmp_path: Path) -> None:
    """Subscribers would work through states that nobody needs."""

    async def work() -> None:
        controllers = Controllers()
        settle(controllers, 40)
        following, transport = over_model(tmp_path, controllers)
        transport.max_bytes = 1 << 20
        count = []
        following.metadata.subscribe(lambda: count.append(following.metadata.applied_offset))
        async with following:
            await level(following, controllers)
        assert len(count) == 1

    run(work())
