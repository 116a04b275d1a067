"""Every file of a log directory, damaged in every way, after every kind of stop, at every place: what consumers get.

Either the same answers as before the damage (records, transactions, times, epochs), or a loud word that names the file,
and nothing that is wrong: what is read then is part of what was written.

Also of `kbroker.cli.repair`, `kbroker.storage.log.damages`, `kbroker.storage.reports.log_repair`,
`kbroker.storage.directories.lost_files`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from kbroker.config import BrokerConfig, LogConfig
from kbroker.errors import KafkaError
from kbroker.records.batch import iterate_records
from kbroker.storage.directories.log_dirs import LogDirError
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from kbroker.storage.log.partition_metadata import encode_partition_metadata
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


class Outcome(Enum):
    SAME = "the same answers"
    LOUD = "said, and nothing wrong"
    UNTOLD = "nothing tells it, in Kafka neither"


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
        log.maybe_increment_log_start_offset(DELETED_TO * number // 2)
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


def written(offset: int) -> bytes:
    word = b"transaction %d" if (offset % 36) in (7, 9, 20) else b"value %d of no one"
    return word % offset


# -- damage -----------------------------------------------------------------------------------------------------------

PARTITION = f"{TP.topic}-{TP.partition}"
SEGMENT_KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
SINGLE_KINDS = (
    f"{PARTITION}/leader-epoch-checkpoint",
    f"{PARTITION}/partition.metadata",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
    "meta.properties",
)
DAMAGES = ("missing", "empty", "zeroed", "torn", "stale")
STOPS = ("clean", "unclean")


def cases() -> Iterator[tuple[str, str, str]]:
    for kind, place in product(SEGMENT_KINDS, range(3)):
        at = BASES[place] if kind != ".snapshot" else (36, 72, 108)[place]
        for damage, stop in product(DAMAGES, STOPS):
            yield f"{PARTITION}/{at:020d}{kind}", damage, stop
    for kind, damage, stop in product(SINGLE_KINDS, DAMAGES, STOPS):
        yield kind, damage, stop


def harm(path: Path, damage: str, stored: Stored, name: str) -> bool:
    """False where there is nothing that could be damaged like that."""
    content = path.read_bytes() if path.exists() else None
    early = stored.early / name
    if content is None:
        return False
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "zeroed":
        path.write_bytes(bytes(len(content)))
    elif damage == "torn":
        used = len(content.rstrip(b"\0"))
        path.write_bytes(content[: used * 2 // 3 - 1])
    elif damage == "stale" and path.name == "partition.metadata":
        path.write_bytes(encode_partition_metadata(random_uuid()))
    elif early.exists() and early.read_bytes() != content:
        path.write_bytes(early.read_bytes())
    elif (other := other_segment(path)) is not None:
        path.write_bytes(other.read_bytes())
    else:
        return False
    return True


def other_segment(path: Path) -> Path | None:
    others = [each for each in sorted(path.parent.glob(f"*{path.suffix}")) if each != path and path.name[:20].isdigit()]
    return others[0] if others else None


def outcome_of(name: str, damage: str) -> Outcome:
    """What has to come of it; after every kind of stop and at every place the same."""
    if name.endswith(".log"):
        return Outcome.LOUD
    if name.endswith(".txnindex") and damage == "missing":
        return Outcome.UNTOLD
    if name == "log-start-offset-checkpoint":
        return Outcome.UNTOLD if damage == "stale" else Outcome.LOUD
    if name == "meta.properties" and damage != "missing":
        return Outcome.LOUD
    if name.endswith("partition.metadata") and damage == "stale":
        return Outcome.LOUD
    return Outcome.SAME


@pytest.mark.parametrize(("name", "damage", "stop"), list(cases()))
def test_damaged_file(
    stored: Stored, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str, stop: str
) -> None:
    """Consumers would get other answers than before, without a word to anybody."""
    data = tmp_path / "data"
    shutil.copytree(stored.clean if stop == "clean" else stored.unclean, data)
    if not harm(data / name, damage, stored, name):
        pytest.skip("there is no such file")
    caplog.set_level(logging.WARNING, "kbroker.storage")
    outcome = outcome_of(name, damage)
    try:
        manager = start(data)
    except LogDirError as error:
        assert outcome is Outcome.LOUD
        assert name in str(error)
        return
    try:
        found = answers_of(manager.logs[TP])
        for key, value in found.items():
            if isinstance(value, list):
                assert all(content == written(offset) for offset, content in value), key
        if outcome is Outcome.SAME:
            assert found == stored.answers
            manager.shutdown()
        elif outcome is Outcome.LOUD:
            assert any(name in text or f"{PARTITION}" in text for text in caplog.messages)
            if name.endswith(".log"):
                check_damaged_log(manager, found, stored, caplog)
    finally:
        manager.release()
    if outcome is Outcome.SAME:
        again = start(data)
        assert answers_of(again.logs[TP]) == stored.answers
        again.release()


def check_damaged_log(
    manager: LogManager, found: dict[str, object], stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be read is said once, with its place; what can be is what was written."""
    for key, value in found.items():
        if isinstance(value, list):
            assert set(value) <= set(stored.answers["all from 4"]), key
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    if manager.environment.damages.known(manager.logs):
        assert len(told) == len({record.getMessage() for record in told})
        assert manager.environment.damages.reasons(manager.logs)
    else:
        # What lies above the recovery point a crash may tear.
        assert any("cut segment" in text for text in caplog.messages)
