"""Group commit on a loop and an executor moved by hand: who waits for which fsync, and what a failed one means.

Also of `kbroker.storage.files.flush_totals`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.base.ready_queue import ReadyQueue
from kbroker.config import LogConfig
from kbroker.errors import KafkaError, KafkaStorageError, NotLeaderOrFollowerError
from kbroker.metadata.image import PartitionImage
from kbroker.replication.partition import Partition
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.log_dir_failure import LogDirFailureChannel
from kbroker.storage.files.open_files import OpenFiles
from kbroker.storage.log.group_commit import FsyncMode, GroupCommit, LogCommitter
from kbroker.storage.log.local_log import LogEnvironment
from kbroker.storage.log.log_validator import AppendOrigin
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import TopicPartition
from tests.storage.batches import TP, HandClock, batch, open_log, read_all
from tests.storage.failing_directory import FailingDirectory
from tests.storage.faulty_files import Fault, FaultyFiles
from tests.storage.full_files import FullFiles

TOPIC_ID = bytes(range(16))
OFFSETS = TopicPartition("__consumer_offsets", 0)


class HandLoop(Executor):
    """Both the loop and the executor: nothing happens until a test says so."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.jobs: list[Callable[[], None]] = []
        self.fsyncs = 0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    call_soon_threadsafe = call_soon

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs.append(function)
        return Future()

    def turn(self) -> None:
        """One turn of the loop."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def fsync(self) -> None:
        """The thread runs the one fsync that is under way, and the loop hears of it; what is settled by that is
        answered in the turn behind it."""
        (job,) = self.jobs
        self.jobs = []
        self.fsyncs += 1
        job()
        self.turn()
        answers, self.soon = (
            [each for each in self.soon if is_ready(each)],
            [each for each in self.soon if not is_ready(each)],
        )
        for each in answers:
            each()


def is_ready(callback: Callable[[], None]) -> bool:
    """Whether it drains a queue of what is ready."""
    return isinstance(getattr(callback, "__self__", None), ReadyQueue)


def void(_: object) -> None:
    """Drops a value."""


class World:
    """A log with group commit, and what was answered."""

    def __init__(
        self,
        directory: Path,
        files: FileSystem | None = None,
        *,
        mode: FsyncMode = FsyncMode.COMMIT,
        config: LogConfig | None = None,
        topic_partition: TopicPartition = TP,
        failures: LogDirFailureChannel | None = None,
    ) -> None:
        self.loop = HandLoop()
        self.commits = GroupCommit(files or FullFiles(), mode)
        environment = LogEnvironment(
            files or FullFiles(),
            HandClock(),
            OpenFiles(64),
            lambda _delay_ms, action: action(),
            commits=self.commits,
        )
        environment.failures = failures
        self.log = open_log(directory, config, env=environment, topic_partition=topic_partition)
        loop: Any = self.loop
        self.ready = ReadyQueue(loop)
        purgatory: Any = SimpleNamespace(mark=void, ready=self.ready)
        image = PartitionImage(topic_partition.partition, 1, 0, (1,), (1,))
        self.partition = Partition(*topic_partition, bytes(16), self.log, 1, image, purgatory)
        self.commits.attach(self.loop, self.loop, lambda log: self.partition.advance(), self.on_refused)
        self.answers: list[tuple[int, str]] = []
        self.sequence = 0

    @property
    def committer(self) -> LogCommitter:
        assert self.log.committer is not None
        return self.log.committer

    def on_refused(self, log: UnifiedLog, error: KafkaError) -> None:
        waits = self.partition.take_waits()
        self.loop.call_soon(lambda: [settled(error) for settled in waits] and None)

    def append(self, *, again: bool = False, origin: AppendOrigin = AppendOrigin.CLIENT) -> int:
        """Appends and answers as the produce handler does; the offset.  `again`: the same batch as the last time."""
        self.sequence += 0 if again else 1
        data = batch([b"%d" % self.sequence], producer_id=5, epoch=0, sequence=self.sequence - 1)
        result = self.log.append_as_leader(data, 0, origin=origin)
        self.partition.appended()
        if self.partition.is_acknowledged(result.last_offset, by_all=True):
            self.answer(result.last_offset, None)
        else:
            self.partition.wait(result.last_offset, True, lambda error: self.answer(result.last_offset, error))
        return result.last_offset

    def answer(self, offset: int, error: KafkaError | None) -> None:
        if error is None:
            assert self.log.high_watermark > offset, "acknowledged and not to be seen by consumers"
        self.answers.append((offset, "" if error is None else type(error).__name__))

    def answered(self) -> list[int]:
        return [offset for offset, error in self.answers if not error]


def test_all_appends_of_a_turn_share_one_fsync_and_wait_for_it(tmp_path: Path) -> None:
    """Each record would cost an fsync, or be acknowledged before it."""
    world = World(tmp_path)
    for _ in range(5):
        world.append()
    assert world.loop.jobs == []
    world.loop.turn()
    assert world.answers == [] and world.log.high_watermark == 0
    world.loop.fsync()
    assert world.answered() == [0, 1, 2, 3, 4]
    assert world.log.high_watermark == 5 and world.loop.fsyncs == 1
    assert world.loop.jobs == [] and world.loop.soon == []


def test_appends_during_an_fsync_wait_for_the_next_one(tmp_path: Path) -> None:
    """What came after an fsync began may not be covered by it."""
    world = World(tmp_path)
    world.append()
    world.loop.turn()
    world.append()
    world.append()
    assert len(world.loop.jobs) == 1, "two fsyncs of one log at once"
    world.loop.fsync()
    assert world.answered() == [0] and world.log.high_watermark == 1
    world.loop.turn()
    world.loop.fsync()
    assert world.answered() == [0, 1, 2] and world.loop.fsyncs == 2


@pytest.mark.parametrize("durable", [0, 1])
def test_a_disk_that_fails_while_the_log_is_cut_back_refuses_what_waits(tmp_path: Path, durable: int) -> None:
    """Producers would wait for an answer until their time is up, and the log go on without what they sent."""
    files = FailingDirectory(str(tmp_path))
    world = World(tmp_path, files)
    for _ in range(durable):
        world.append()
        world.loop.turn()
        world.loop.fsync()
    world.append()
    world.loop.turn()
    files.fail(errno.EIO)
    world.loop.fsync()
    world.loop.turn()
    assert world.answers[durable:] == [(durable, "KafkaStorageError")]
    with pytest.raises(KafkaStorageError):
        world.append()
    # The disk answers again, but what is on it has to be checked first.
    files.heal()
    with pytest.raises(KafkaStorageError):
        world.append()


def test_a_repeated_batch_waits_like_the_first(tmp_path: Path) -> None:
    """A client that lost its connection would get the acknowledgement that the first request still waits for."""
    world = World(tmp_path)
    world.append()
    world.loop.turn()
    world.append(again=True)
    assert world.answers == []
    world.loop.fsync()
    assert world.answered() == [0, 0]
    world.append(again=True)
    assert world.answered() == [0, 0, 0]


def test_flush_messages_waits_each_time_it_is_reached(tmp_path: Path) -> None:
    """flush.messages would hold the loop for an fsync, or acknowledge more than it says before one."""
    world = World(tmp_path, mode=FsyncMode.OS, config=LogConfig(flush_messages=3))
    world.append()
    world.append()
    assert world.answered() == [0, 1]
    world.append()
    world.loop.turn()
    world.append()
    assert world.answered() == [0, 1], "four acknowledged, none durable"
    world.loop.fsync()
    assert world.answered() == [0, 1, 2]
    world.loop.turn()
    world.loop.fsync()
    assert world.answered() == [0, 1, 2, 3]
    world.append()
    world.append()
    assert world.answered() == [0, 1, 2, 3, 4, 5]
    assert world.loop.fsyncs == 2


def test_an_append_made_by_an_answer_is_not_lost(tmp_path: Path) -> None:
    """An answer lets its connection go on at once, in the midst of the others' answers."""
    world = World(tmp_path)
    world.append()
    world.partition.wait(0, True, lambda error: void(world.append()))
    world.loop.turn()
    world.loop.fsync()
    assert world.answered() == [0]
    world.loop.turn()
    world.loop.fsync()
    assert world.answered() == [0, 1]


@pytest.mark.parametrize("topic_partition", [TP, TopicPartition("__mine", 0)], ids=str)
def test_a_failed_fsync_cuts_the_log_back_and_the_producer_goes_on(
    tmp_path: Path, topic_partition: TopicPartition
) -> None:
    """Records that were refused would be there, or the refused producer would be out of sequence for ever; whatever
    the name of a user's topic begins with."""
    files = FullFiles()
    world = World(tmp_path, files, topic_partition=topic_partition)
    world.append()
    world.loop.turn()
    world.loop.fsync()
    world.append()
    world.loop.turn()
    world.append()
    files.failing = {"fsync"}
    world.loop.fsync()
    world.loop.turn()
    assert world.answers == [(0, ""), (1, "KafkaStorageError"), (2, "KafkaStorageError")]
    assert world.log.log_end_offset == world.log.high_watermark == 1
    files.failing = set()
    world.sequence = 1
    assert world.append() == 1
    world.loop.turn()
    world.loop.fsync()
    assert world.answered() == [0, 1]
    assert [value for _, value in read_all(world.log)] == [b"1", b"2"]
    world.log.check_invariants()


def test_a_log_that_was_cut_takes_nothing_more_where_its_directory_has_failed(tmp_path: Path) -> None:
    """A follower may have copied what was cut: it would take other records at those offsets, in the same leader epoch,
    for the ones that it has, and lead with them."""
    files = FullFiles()
    failures = LogDirFailureChannel(files)
    failures.watch([str(tmp_path)])
    world = World(tmp_path / "log", files, failures=failures)
    world.append()
    world.loop.turn()
    world.loop.fsync()
    world.append()
    world.loop.turn()
    files.failing = {"fsync"}
    world.loop.fsync()
    world.loop.turn()
    assert world.answers == [(0, ""), (1, "KafkaStorageError")]
    files.failing = set()
    with pytest.raises(KafkaStorageError):
        world.append()
    assert world.log.log_end_offset == 1


def test_an_append_whose_partition_has_left_before_it_waits_is_refused_at_once(tmp_path: Path) -> None:
    """While a thread judges the rest of a request its topic may be deleted: what was appended before would wait for a
    commit that nobody settles, until its time is over."""
    world = World(tmp_path)
    assert world.partition.take_waits(for_good=True) == []
    world.append()
    assert world.answers == []
    world.loop.turn()
    assert world.answers == [(0, "NotLeaderOrFollowerError")]
    world.partition.follow(PartitionImage(0, 1, 1, (1,), (1,)))
    world.loop.fsync()
    world.append()
    world.loop.turn()
    world.loop.fsync()
    world.loop.turn()
    assert world.answers[1:] == [(1, "")]


def test_a_deletion_that_waits_for_replicas_ends_with_its_partition(tmp_path: Path) -> None:
    """DeleteRecords of a topic that is deleted meanwhile would wait until its time is over."""
    world = World(tmp_path)
    told: list[KafkaError | None] = []
    world.partition.wait_for_deletion(1, told.append)
    for settled in world.partition.take_waits(for_good=True):
        settled(NotLeaderOrFollowerError())
    assert [type(error) for error in told] == [NotLeaderOrFollowerError]


def test_state_of_a_coordinator_is_not_cut_back_but_closed(tmp_path: Path) -> None:
    """The coordinator's memory would be ahead of its log without anybody knowing."""
    files = FullFiles()
    world = World(tmp_path, files, topic_partition=OFFSETS)
    world.append(origin=AppendOrigin.COORDINATOR)
    world.loop.turn()
    files.failing = {"fsync"}
    world.loop.fsync()
    world.loop.turn()
    assert world.answers == [(0, "KafkaStorageError")]
    files.failing = set()
    with pytest.raises(KafkaStorageError):
        world.append(origin=AppendOrigin.COORDINATOR)
    assert world.log.log_end_offset == 1
    with pytest.raises(OSError, match="an earlier fsync failed"):
        world.log.close()


def test_an_fsync_that_a_truncation_overtook_acknowledges_nothing(tmp_path: Path) -> None:
    """Records written where others were cut off would count as durable."""
    world = World(tmp_path)
    for _ in range(3):
        world.append()
    world.loop.turn()
    world.log.truncate_to(1)
    world.sequence = 1
    world.append()
    world.loop.fsync()
    assert world.committer.durable_offset == 0
    assert world.answered() == []
    world.loop.turn()
    world.loop.fsync()
    assert world.committer.durable_offset == 2


@pytest.mark.parametrize("fails", [False, True])
def test_an_fsync_that_ends_behind_the_stop_touches_no_log(tmp_path: Path, fails: bool) -> None:
    """A stop would end with an error, or a closed log be cut back."""
    files = FullFiles()
    world = World(tmp_path, files)
    world.append()
    world.loop.turn()
    world.append()
    if fails:
        files.failing.add("fsync")
    end = world.log.log_end_offset
    world.commits.detach()
    world.loop.fsync()
    assert not world.loop.soon and not world.loop.jobs and not world.answers
    assert world.log.log_end_offset == end


def test_a_log_that_goes_away_answers_who_waits(tmp_path: Path) -> None:
    """Producers to a topic that is deleted meanwhile would wait until they time out."""
    world = World(tmp_path)
    world.append()
    world.loop.turn()
    world.append()
    world.committer.close()
    assert world.answers == []
    world.loop.turn()
    assert world.answers == [(0, "NotLeaderOrFollowerError"), (1, "NotLeaderOrFollowerError")]
    world.loop.fsync()
    assert world.loop.jobs == world.loop.soon == [] and len(world.answers) == 2


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.sampled_from(["append", "turn", "fsync", "roll"]), max_size=40), lose=st.booleans())
def test_what_was_acknowledged_survives_the_machine(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], lose: bool
) -> None:
    """Acknowledged with kbroker.fsync=commit, gone after a power failure."""
    directory = tmp_path_factory.mktemp("commit")
    files = FaultyFiles(fault=Fault.LOSE if lose else Fault.GARBLE)
    world = World(directory, files, config=LogConfig(internal_segment_bytes=300, index_interval_bytes=50))
    world.log.assign_topic_id(TOPIC_ID)
    for step in steps:
        if step == "append":
            world.append()
        elif step == "roll" and world.log.log_end_offset > world.log.local.segments.active.base_offset:
            # Without the flush that follows a roll: only the committer's own fsyncs count here.
            world.log.local.roll(world.log.log_end_offset, None)
        elif step == "turn":
            world.loop.turn()
        elif step == "fsync" and world.loop.jobs:
            world.loop.fsync()
    files.crashed = True
    files.after_crash()
    again = open_log(directory, LogConfig(internal_segment_bytes=300, index_interval_bytes=50))
    again.check_invariants()
    found = dict(read_all(again))
    for offset in world.answered():
        assert found[offset] == b"%d" % (offset + 1)
    assert again.topic_id == TOPIC_ID or not world.answered(), "nobody would know whose records they are"
    assert world.log.high_watermark <= again.log_end_offset, "consumers saw what is gone"
