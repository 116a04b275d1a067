"""The judge and the disk of the simulation: what they have to see, and what they may not invent."""

from __future__ import annotations

import contextlib
import os
import random
import struct
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kbroker.schemas import wire
from tests.simulation.connection import ModelConnection
from tests.simulation.disk import Disk
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.judged_batches import batches
from tests.simulation.loop import SimulatedLoop
from tests.simulation.sockets import Network
from tests.simulation.surroundings import surroundings

PARTITION = ("t", 0)
TOLD: dict[str, Any] = {"committed": True, "certain": True}


def judge() -> Judge:
    made = Judge(lambda: 0.0)
    made.sends("p", PARTITION, [b"a", b"b", b"c"])
    made.acknowledged("p", PARTITION, [b"a"], 0, 0, **TOLD)
    return made


def test_what_is_right_is_no_violation() -> None:
    """Nobody would look at what the simulation reports."""
    made = judge()
    made.acknowledged("q", PARTITION, [b"b", b"c"], 1, 1, **TOLD)
    assert made.fetched("f", PARTITION, batches(b"a", b"b", b"c"), 0, 3) == 3
    made.read_back(PARTITION, {0: b"a", 1: b"b", 2: b"c"}, 3)
    assert not made.violations


def test_an_offset_that_was_another_records_is_seen() -> None:
    """A producer told of another one's record would go unnoticed."""
    with pytest.raises(ViolationError, match="was before"):
        judge().acknowledged("q", PARTITION, [b"b"], 0, 0, **TOLD)


def test_an_offset_below_what_was_there_before_the_request_is_seen() -> None:
    """A log that goes back would go unnoticed while its records are not read again."""
    made = judge()
    with pytest.raises(ViolationError, match="was the end before"):
        made.acknowledged("q", PARTITION, [b"b"], 1, 2, **TOLD)


def test_a_record_that_is_there_twice_is_seen() -> None:
    """Idempotence could break."""
    made = judge()
    with pytest.raises(ViolationError, match="at 1 and at 0"):
        made.fetched("f", PARTITION, batches(b"a", b"a"), 0, 2)


def test_records_above_what_is_committed_are_seen() -> None:
    """Consumers could read what is lost later."""
    with pytest.raises(ViolationError, match="above"):
        judge().fetched("f", PARTITION, batches(b"a", b"b"), 0, 1)


def test_an_acknowledged_record_that_is_gone_is_seen() -> None:
    """Loss could go unnoticed."""
    with pytest.raises(ViolationError, match="was acknowledged at 0"):
        judge().read_back(PARTITION, {}, 0)


def test_a_record_that_nobody_sent_is_seen() -> None:
    """Bytes of another buffer could be stored as a record."""
    with pytest.raises(ViolationError, match="nobody sent"):
        judge().fetched("f", PARTITION, batches(b"a", b"x"), 0, 2)


def answered(*frames: tuple[int, bytes]) -> None:
    """A connection that has asked for ApiVersions 0 with correlation id 7, and gets these frames: id and body."""
    loop = SimulatedLoop(1)
    Network(loop)
    with contextlib.closing(loop), surroundings(loop):
        connection = ModelConnection("c", loop, Judge(loop.time), "c", lambda: 7)
        connection.connection_made(mock.Mock())
        connection.ask(wire.ApiVersionsRequest(), 0)
        for correlation_id, body in frames:
            frame = struct.pack(">ii", 4 + len(body), correlation_id) + body
            connection.get_buffer(-1)[: len(frame)] = frame
            connection.buffer_updated(len(frame))


def test_an_answer_of_another_connection_is_seen() -> None:
    """The fault that the simulation is for."""
    right = struct.pack(">hi", 0, 0)
    answered((7, right))
    with pytest.raises(ViolationError, match="is the oldest request"):
        answered((8, right))
    with pytest.raises(ViolationError, match="did not ask"):
        answered((7, right), (7, right))


def test_an_answer_of_another_version_is_seen() -> None:
    """Clients would fail to read it, or read nonsense."""
    for body in (struct.pack(">hii", 0, 0, 0), struct.pack(">h", 0), b"\0" + struct.pack(">hi", 0, 0)):
        with pytest.raises(ViolationError, match="version"):
            answered((7, body))


def test_a_power_cut_leaves_what_was_synced(tmp_path: Path) -> None:
    """Loss that no disk inflicts would be taken for the broker's, or none be inflicted."""
    disk, source = Disk(), tmp_path / "source"
    source.mkdir()
    fd = os.open(source / "log", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"synced")
    disk.note(fd)
    folder = os.open(source, os.O_RDONLY)
    disk.note(folder)
    os.write(fd, b"unsynced")
    ends = set()
    for seed in range(50):
        target = tmp_path / str(seed)
        disk.after_power_cut(source, target, random.Random(seed))
        left = (target / "log").read_bytes()
        assert left.startswith(b"synced")
        ends.add(len(left))
    assert {len(b"synced"), len(b"syncedunsynced")} < ends
    disk.after_kill(source, tmp_path / "killed", random.Random(1))
    assert (tmp_path / "killed" / "log").read_bytes() == b"syncedunsynced"
    for each in (fd, folder):
        os.close(each)
