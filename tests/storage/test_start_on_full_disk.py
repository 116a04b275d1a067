"""A start after an unclean stop on a disk without room: it serves what is there, whichever call finds none."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import KafkaStorageError
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.files.checkpoints import RECOVERY_POINT_CHECKPOINT
from kbroker.storage.files.filesystem import Buffer
from kbroker.storage.log.log_segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kbroker.storage.manager.directory_problems import directory_problems
from kbroker.storage.manager.log_manager import LogManager
from kbroker.storage.recovery import recovery_saver
from tests.storage.batches import HandClock, UnsyncedFiles, append, batch
from tests.storage.full_files import FullFiles
from tests.storage.stored_log import CLUSTER, CONFIG, PARTITION, TOPIC_ID, TP, Stored, answers_of, stored

__all__ = ["stored"]


class DiskWithLittleRoom(UnsyncedFiles):
    """Takes `room` calls that need space, and none after those."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.refused: list[str] = []

    def _take(self, what: str) -> None:
        self.room -= 1
        if self.room < 0:
            self.refused.append(what)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & os.O_CREAT and not Path(path).exists():
            self._take(f"open {path}")
        return super().open(path, flags, mode)

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        self._take("pwrite")
        super().pwrite(fd, data, position)

    def ftruncate(self, fd: int, size: int) -> None:
        if size > self.size(fd):
            self._take("ftruncate")
        super().ftruncate(fd, size)

    def mkdir(self, path: str) -> None:
        self._take(f"mkdir {path}")
        super().mkdir(path)


def manager_on(data: Path, files: UnsyncedFiles, fsync: str) -> LogManager:
    """A broker's logs, loaded."""
    values = {"log.dirs": str(data), "kbroker.fsync": fsync, "transaction.partition.verification.enable": "false"}
    manager = LogManager(BrokerConfig.from_mapping(values), HandClock(), files)
    topic = replace(CONFIG, flush_messages=1) if fsync == "commit" else CONFIG
    manager.start(CLUSTER, {TP.topic: KnownTopic(TOPIC_ID, topic, 1)})
    manager.logs[TP].maybe_increment_high_watermark(1 << 60)
    return manager


@pytest.mark.parametrize("fsync", ["os", "commit"])
@pytest.mark.parametrize(
    "lost",
    [
        (),
        (RECOVERY_POINT_CHECKPOINT,),
        (RECOVERY_POINT_CHECKPOINT, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, ".snapshot"),
        (INDEX_SUFFIX,),
        (TIME_INDEX_SUFFIX, ".snapshot"),
        ("leader-epoch-checkpoint", f"1{TXN_INDEX_SUFFIX}"),
    ],
    ids=lambda lost: "+".join(lost) or "nothing",
)
def test_a_start_finds_no_room_at_any_call(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str, lost: tuple[str, ...]
) -> None:
    """A broker whose disk is full would not come back to serve what it has and to have something deleted."""
    monkeypatch.setattr(recovery_saver, "AFTER_SECONDS", 0.0)
    room, refused = 0, True
    while refused:
        data = tmp_path / str(room)
        shutil.copytree(stored.unclean, data)
        for path in data.rglob("*"):
            if path.name.endswith(lost):
                path.unlink()
        files = DiskWithLittleRoom(room)
        manager = manager_on(data, files, fsync)
        refused = bool(files.refused)
        assert not manager.failures.offline
        log = manager.logs[TP]
        assert answers_of(log) == stored.answers, files.refused
        files.room = 1 << 40
        if room % 2:
            append(log, batch([b"there is room again"]), leader_epoch=2)
            manager.shutdown()
        else:
            manager.release()
        again = manager_on(data, UnsyncedFiles(), fsync)
        log = again.logs[TP]
        log.check_invariants()
        if not room % 2:
            assert answers_of(log) == stored.answers, files.refused
        again.shutdown()
        room += 1
    assert room > 1


def test_a_partition_without_a_file_is_made_when_there_is_room(tmp_path: Path) -> None:
    """A partition whose directory alone was made before the disk was full would keep all others from being served."""
    data = tmp_path / "data"
    (data / PARTITION).mkdir(parents=True)
    files = DiskWithLittleRoom(1 << 40)
    config = BrokerConfig.from_mapping({"log.dirs": str(data)})
    manager = LogManager(config, HandClock(), files)
    manager.open_dirs()
    manager.claim(CLUSTER)
    files.room = 0
    manager.load_all({TP.topic: KnownTopic(TOPIC_ID, CONFIG, 1)})
    assert manager.logs == {} and not manager.failures.offline
    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            manager.get_or_create_log(TP, TOPIC_ID, CONFIG)
    files.room = 1 << 40
    append(manager.get_or_create_log(TP, TOPIC_ID, CONFIG), batch([b"one"]))
    manager.shutdown()


def test_a_disk_without_a_byte_is_named_whatever_the_reserve_is(tmp_path: Path) -> None:
    """`/readyz` would say "ready" and no more until the first producer is refused."""
    files = FullFiles()
    values = {"log.dirs": str(tmp_path), "kbroker.disk.reserve.bytes": "0"}
    manager = LogManager(BrokerConfig.from_mapping(values), HandClock(), files)
    manager.start(CLUSTER)
    assert list(directory_problems(manager)) == []
    files.free = 0
    asyncio.run(manager.watch.run())
    (problem,) = directory_problems(manager)
    assert str(tmp_path) in problem.text and "0 bytes are left" in problem.text
    manager.shutdown()
