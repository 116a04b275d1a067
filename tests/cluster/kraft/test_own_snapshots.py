"""When a node writes a snapshot of its metadata log, what of the quorum is in it, and when older ones go.

Also of `kbroker.cluster.kraft.own_snapshots`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.cluster.kraft.batches import ControlRecord, MetadataBatch, checked_batch, control_batch, records_of
from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.replicated_log import ReplicatedLog
from kbroker.cluster.kraft.settings import MetadataLogSettings
from kbroker.cluster.kraft.snapshots import snapshot_batches, snapshot_name
from kbroker.metadata.metadata_record import metadata_record
from kbroker.records.control import ControlType
from kbroker.schemas import wire
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.cluster.kraft.controllers import START_MS, config_record, data_batch
from tests.cluster.kraft.metadata_files import FOLDER
from tests.replication.simulation.virtual_loop import VirtualClock, VirtualLoop, run_virtually

if TYPE_CHECKING:
    from concurrent.futures import Executor


class DiskLoop(VirtualLoop):
    """What threads do takes a moment."""

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done: asyncio.Future[Any] = self.create_future()
        self.call_later(0.001, lambda: done.set_result(func(*args)))
        return done


class Node:
    """A log that is committed as it is appended."""

    def __init__(self, path: Path, loop: VirtualLoop, settings: MetadataLogSettings) -> None:
        clock = VirtualClock(loop)
        self.folder = path / FOLDER
        self.directory = MetadataDirectory(SYSTEM_FILES, str(path), settings, clock)
        self.metadata = ClusterMetadata("MkU3OEVBNTcwNTJENDM2Qg")
        self.log = ReplicatedLog(loop, self.directory, self.metadata, settings, clock)
        self.end = 0

    async def write(self, batch: MetadataBatch) -> None:
        self.end = batch.end_offset
        self.log.append((batch,))
        await self.log.written()
        await self.log.apply(self.end)

    async def records(self, count: int) -> None:
        for _ in range(count):
            await self.write(data_batch(self.end, 3, [config_record(self.end)]))

    def snapshots(self) -> list[str]:
        return sorted(each.name for each in self.folder.glob("*.checkpoint"))

    def control_of(self, snapshot: SnapshotId) -> list[object]:
        batches = snapshot_batches((self.folder / snapshot_name(snapshot)).read_bytes(), "test")
        found = [each for batch in batches for _, each in records_of(batch, "test")]
        return [each.value for each in found if isinstance(each, ControlRecord)]


def voters_batch(offset: int, *ids: int) -> MetadataBatch:
    voters = wire.VotersRecord(version=0, voters=[wire.VotersRecord.Voter(voter_id=each) for each in ids])
    version = wire.KRaftVersionRecord(version=0, kraft_version=1)
    records = [(ControlType.KRAFT_VERSION, version), (ControlType.KRAFT_VOTERS, voters)]
    return checked_batch(control_batch(records, offset, 3, START_MS), "test")


def play(path: Path, settings: MetadataLogSettings, story: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    loop = DiskLoop()

    async def run() -> None:
        node = Node(path, loop, settings)
        await node.log.open(is_voter=True)
        await story(node)
        await node.log.close()

    run_virtually(run(), loop)


def test_a_snapshot_is_due_by_size_and_by_time(tmp_path: Path) -> None:
    """The log would grow without bound, or each record cost a snapshot."""

    async def story(node: Node) -> None:
        await node.records(3)
        await asyncio.sleep(1)
        assert node.snapshots() == []
        await node.records(12)
        await asyncio.sleep(1)
        first = node.snapshots()
        assert len(first) == 1
        await asyncio.sleep(3600)
        assert node.snapshots() == first, "nothing was written since"
        await node.records(1)
        await asyncio.sleep(1)
        assert node.snapshots()[1:] == [snapshot_name(SnapshotId(node.end, 3))]

    play(tmp_path, MetadataLogSettings(snapshot_bytes=1000), story)


def test_a_snapshot_has_the_voters_of_its_offset(tmp_path: Path) -> None:
    """A node that begins with it would count other voters than the log behind it says."""

    async def story(node: Node) -> None:
        await node.write(voters_batch(0, 3001))
        end = node.end
        # The snapshot is due; before its task runs another voter has come.
        await node.write(voters_batch(end, 3001, 3002))
        await asyncio.sleep(1)
        for snapshot, count in ((SnapshotId(end, 3), 1), (SnapshotId(node.end, 3), 2)):
            if (node.folder / snapshot_name(snapshot)).exists():
                control = node.control_of(snapshot)
                voters = next(each for each in control if isinstance(each, wire.VotersRecord))
                assert len(voters.voters) == count, snapshot
                assert any(isinstance(each, wire.KRaftVersionRecord) and each.kraft_version == 1 for each in control)
        assert node.snapshots()

    play(tmp_path, MetadataLogSettings(snapshot_bytes=1), story)


def test_no_snapshot_ends_within_a_transaction(tmp_path: Path) -> None:
    """A node that begins with it would drop the records before it, or apply half of a change."""

    async def story(node: Node) -> None:
        begin = metadata_record(wire.BeginTransactionRecord(name="bootstrap"))
        await node.write(data_batch(0, 3, [begin, config_record(1)]))
        await node.records(20)
        await asyncio.sleep(1)
        assert node.snapshots() == []
        await node.write(data_batch(node.end, 3, [metadata_record(wire.EndTransactionRecord())]))
        await asyncio.sleep(1)
        assert node.snapshots() == [snapshot_name(SnapshotId(node.end, 3))]

    play(tmp_path, MetadataLogSettings(snapshot_bytes=100), story)


def test_what_is_old_goes_each_minute(tmp_path: Path) -> None:
    """On a quiet cluster old snapshots, and the log before them, would stay for ever."""

    async def story(node: Node) -> None:
        for _ in range(2):
            await node.records(5)
            await asyncio.sleep(1)
        names = node.snapshots()
        assert len(names) == 2 and node.directory.start_offset == 0
        await asyncio.sleep(8 * 86_400)
        assert node.snapshots() == names[1:]
        assert node.directory.start_offset > 0

    play(tmp_path, MetadataLogSettings(snapshot_bytes=300), story)
