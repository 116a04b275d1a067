"""Deletions that wait for file.delete.delay.ms, while files of the same name come again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from kbroker.config import BrokerConfig, LogConfig
from kbroker.storage.local_log import LogEnvironment
from kbroker.storage.log_manager import LogManager
from kbroker.storage.log_segment import LogSegment
from kbroker.storage.open_files import OpenFiles
from kbroker.storage.unified_log import UnifiedLog
from kbroker.types import TopicPartition, random_uuid
from tests.cleaner.logs import clean, put
from tests.cleaner.logs import config as compacted
from tests.storage.batches import UNSYNCED_FILES, HandClock, append, batch, open_log
from tests.storage.moves import Inline

TP = TopicPartition("orders", 0)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
CONFIG = LogConfig(internal_segment_bytes=200, file_delete_delay_ms=60_000)


def manager_in(root: Path, clock: HandClock) -> LogManager:
    manager = LogManager(BrokerConfig.from_mapping({"log.dirs": str(root)}), clock, UNSYNCED_FILES, Inline())
    manager.start(CLUSTER)
    return manager


def retire_some(log: UnifiedLog) -> set[str]:
    """Fills the log and takes its first half away; the names that wait to be unlinked."""
    first = log.log_end_offset
    for at in range(20):
        append(log, batch([b"v%03d" % at]))
    log.maybe_increment_log_start_offset(first + 10)
    return waiting(log)


def waiting(log: UnifiedLog) -> set[str]:
    return {path.name for path in Path(log.directory).iterdir() if path.suffix == ".deleted"}


def whole(segment: LogSegment) -> bytes:
    return UNSYNCED_FILES.pread(segment.file().fd, segment.size, 0)


def test_a_topic_made_again_keeps_its_files_for_their_own_time(tmp_path: Path) -> None:
    """Deletions of the topic that had the name before would take files from the one that has it now."""
    clock = HandClock()
    manager = manager_in(tmp_path, clock)
    old = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    assert retire_some(old)
    manager.delete_log(TP)
    clock.now += 30_000
    new = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    retired = retire_some(new)
    assert retired
    clock.now += 31_000
    manager.run_due()
    assert waiting(new) == retired
    clock.now += 30_000
    manager.run_due()
    assert waiting(new) == set()
    manager.shutdown()


def test_a_thread_that_deletes_for_a_topic_that_is_gone_meets_nothing_of_the_next(tmp_path: Path) -> None:
    """A deletion that a busy disk holds up would end in the directory of the topic that was made meanwhile."""
    clock = HandClock()
    held: list[Callable[[], None]] = []

    class Held(Inline):
        def submit(self, job: Callable[[], None], /, *args: object, **kwargs: object) -> Future[None]:
            held.append(job)
            return Future()

    manager = manager_in(tmp_path, clock)
    old = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    retire_some(old)
    clock.now += 61_000
    manager.environment.executor = Held()
    manager.run_due()
    manager.environment.executor = Inline()
    deletions = list(held)
    assert deletions
    manager.delete_log(TP)
    # The thread had asked whether the log is still there before it was deleted.
    old.local.left = False
    new = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    retired = retire_some(new)
    for delete in deletions:
        delete()
    assert waiting(new) == retired
    manager.shutdown()


def test_a_segment_that_leaves_after_one_of_its_name_leaves_that_one_alone(tmp_path: Path) -> None:
    """A reader that holds a segment would read the bytes of another at positions that mean nothing there."""
    later: list[Callable[[], None]] = []
    env = LogEnvironment(UNSYNCED_FILES, HandClock(), OpenFiles(64), lambda _delay_ms, action: later.append(action))
    log = open_log(tmp_path / "log", compacted(file_delete_delay_ms=60_000), env=env)
    held: list[tuple[LogSegment, bytes]] = []
    checkpoint = 0
    for turn in range(3):
        for at in range(12):
            put(log, (b"k%d" % (at % 3), b"turn %d, value %d, " % (turn, at) + b"x" * 40))
        log.roll()
        segment = log.local.segments.first
        held.append((segment, whole(segment)))
        checkpoint = clean(log, checkpoint).end_offset
        assert log.local.segments.first is not segment
    assert len({segment.base_offset for segment, _ in held}) == 1
    for segment, content in held:
        assert whole(segment) == content
    for turn, action in enumerate(later):
        action()
        if turn == 0:
            assert whole(held[-1][0]) == held[-1][1]
    assert waiting(log) == set()
    log.close()


def test_a_segment_that_has_left_is_looked_up_in_its_own_indexes(tmp_path: Path) -> None:
    """A search that a compaction overtook would take the new segment's index for the old one's and miss records."""
    later: list[Callable[[], None]] = []
    env = LogEnvironment(UNSYNCED_FILES, HandClock(), OpenFiles(64), lambda _delay_ms, action: later.append(action))
    log = open_log(tmp_path / "log", compacted(internal_segment_bytes=4000, file_delete_delay_ms=60_000), env=env)
    for at in range(60):
        put(log, (b"k%d" % (at % 3), b"value %d, " % at + b"x" * 40))
    log.roll()
    log.close()
    # Now the entries come from the files.
    log = open_log(tmp_path / "log", log.config, env=env, clean=True)
    segment = log.local.segments.first
    end = segment.base_offset + 20
    before = [segment.locate(offset) for offset in range(segment.base_offset, end)]
    clean(log)
    assert [segment.locate(offset) for offset in range(segment.base_offset, end)] == before
    log.close()
