"""Every file of a log directory, damaged in every way, after every kind of stop, at every place: what consumers get.

Either the same answers as before the damage (records, transactions, times, epochs), or a loud word that names the file,
and nothing that is wrong: what is read then is part of what was written.

Also of `kbroker.cli.storage.repair`, `kbroker.storage.log.damages`, `kbroker.storage.reports.log_repair`,
`kbroker.storage.directories.lost_files`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from enum import Enum
from itertools import product
from pathlib import Path

import pytest

from kbroker.storage.directories.log_dirs import LogDirError
from kbroker.storage.log.partition_metadata import encode_partition_metadata
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import random_uuid
from tests.storage.stored_log import (
    BASES,
    PARTITION,
    TP,
    Stored,
    answers_of,
    start,
    stored,
)

__all__ = ["stored"]


class Outcome(Enum):
    SAME = "the same answers"
    LOUD = "said, and nothing wrong"
    UNTOLD = "nothing tells it, in Kafka neither"


def written(offset: int) -> bytes:
    word = b"transaction %d" if (offset % 36) in (7, 9, 20) else b"value %d of no one"
    return word % offset


# -- damage -----------------------------------------------------------------------------------------------------------

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
