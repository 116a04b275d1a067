"""A log on disk, to be damaged, and what it answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kbroker.config import BrokerConfig, LogConfig
from kbroker.errors import KafkaError
from kbroker.records.batch import iterate_records
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.storage.batches import START_MS, UNSYNCED_FILES, HandClock, append, batch, headers, marker, region_bytes

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = random_uuid()
TP = TopicPartition("orders", 0)
CONFIG = LogConfig(index_interval_bytes=150, segment_index_bytes=2400)
BASES = (0, 36, 72)
DELETED_TO = 4
END = 108


def manager_of(path: Path) -> LogManager:
    values = {"log.dirs": str(path), "node.id": "1", "transaction.partition.verification.enable": "false"}
    return LogManager(BrokerConfig.from_mapping(values), HandClock(), UNSYNCED_FILES)


def start(path: Path) -> LogManager:
    manager = manager_of(path)
    try:
        manager.start(CLUSTER, {TP.topic: KnownTopic(TOPIC_ID, CONFIG, 1)})
        manager.get_or_create_log(TP, TOPIC_ID, CONFIG).maybe_increment_high_watermark(1 << 60)
    except BaseException:
        manager.release()
        raise
    return manager


def fill_segment(log: UnifiedLog, number: int) -> None:
    """36 offsets: records of no producer, a committed and an aborted transaction between them."""
    base = BASES[number]

    def put(data: bytearray, *, control: bool = False) -> None:
        append(log, data, leader_epoch=number, origin=AppendOrigin.COORDINATOR if control else None)

    for step in range(36):
        offset = base + step
        time = START_MS + 10 * offset
        value = [b"value %d of no one" % offset]
        if step in (7, 9, 20):
            value = [b"transaction %d" % offset]
            producer = 8 if step == 20 else 7
            sequence = 2 * number + (step == 9) if producer == 7 else number
            put(batch(value, timestamp=time, producer_id=producer, epoch=0, sequence=sequence, transactional=True))
        elif step in (14, 27):
            put(marker(7 if step == 14 else 8, 0, abort=step == 14), control=True)
        else:
            put(batch(value, timestamp=time))


class Stored(NamedTuple):
    """Copies of a log directory at three moments, and what consumers get."""

    early: Path
    clean: Path
    unclean: Path
    answers: dict[str, object]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    root = tmp_path_factory.mktemp("stored")
    manager = start(root / "data")
    log = manager.logs[TP]
    for number in range(3):
        fill_segment(log, number)
        if number < 2:
            log.roll()
        log.delete_records_before(DELETED_TO * number // 2)
        if number == 1:
            log.flush()
            manager.checkpoints.write_all()
            shutil.copytree(root / "data", root / "early")
    assert tuple(segment.base_offset for segment in log.local.segments) == BASES
    # Half of the last segment is durable when the process is killed.
    log.local.flush_now(90, log._small_files(with_snapshot=False))
    manager.checkpoints.write_all()
    (root / "data" / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TP.topic} {TP.partition} 36\n")
    shutil.copytree(root / "data", root / "unclean")
    answers = answers_of(log)
    manager.shutdown()
    shutil.copytree(root / "data", root / "clean")
    return Stored(root / "early", root / "clean", root / "unclean", answers)


def answers_of(log: UnifiedLog) -> dict[str, object]:
    found: dict[str, object] = {"bounds": (log.log_start_offset, log.log_end_offset)}
    for name, isolation in (("all", FetchIsolation.HIGH_WATERMARK), ("committed", FetchIsolation.TXN_COMMITTED)):
        for offset in range(DELETED_TO, END, 5):
            found[f"{name} from {offset}"] = attempt(lambda at=offset, how=isolation: records(log, at, how))
    for offset in range(DELETED_TO, END, 3):
        time = START_MS + 10 * offset - 4
        found[f"time of {offset}"] = attempt(lambda at=time: log.offset_for_timestamp(at))
    found["latest time"] = attempt(lambda: log.offset_for_timestamp(-3))
    for epoch in range(4):
        found[f"end of epoch {epoch}"] = log.end_offset_for_epoch(epoch)
    return found


def attempt(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except (KafkaError, ValueError) as error:
        return f"error {type(error).__name__}"


def records(log: UnifiedLog, offset: int, isolation: FetchIsolation) -> list[tuple[int, bytes | None]]:
    """What a consumer hands on from `offset` on, up to an error."""
    found: list[tuple[int, bytes | None]] = []
    while offset < log.log_end_offset:
        data = log.read(offset, 700, isolation, True)
        content = region_bytes(data)
        aborted = sorted((txn.first_offset, txn.producer_id) for txn in data.aborted_transactions or ())
        dropped: set[int] = set()
        batches = headers(content)
        if not batches:
            break
        for info in batches:
            while aborted and aborted[0][0] <= info.last_offset:
                dropped.add(aborted.pop(0)[1])
            if info.is_control:
                dropped.discard(info.producer_id)
            elif not (info.is_transactional and info.producer_id in dropped):
                part = content[info.position : info.position + info.size_in_bytes]
                found.extend(
                    (record.offset, record.value) for record in iterate_records(part) if record.offset >= offset
                )
            following = info.last_offset + 1
        offset = following
    return found


PARTITION = f"{TP.topic}-{TP.partition}"
