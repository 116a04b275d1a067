"""A broker whose files were damaged or removed while it stood still: what consumers get, what operators see and do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from tests.broker.client import Batch, Client, Closed, fetch_values, scrape
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker
from tests.storage.batches import headers

RECORDS = 60
PADDING = b"x" * 50_000
SEGMENT_BYTES = "1048576"
CUT = 100
BATCH_BYTES = len(Batch([(b"10", PADDING)]).encoded())


def text_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def logs(*arguments: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "kbroker.cli", "logs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout


def filled(broker: BrokerProcess) -> list[Path]:
    """Segments of 20 records each; their log files."""
    with Client(broker.port) as client:
        client.create("t", configs={"segment.bytes": SEGMENT_BYTES})
        for number in range(RECORDS):
            client.write("t", Batch([(b"%d" % number, PADDING)]))
    found = sorted((broker.data_dir / "t-0").glob("*.log"))
    assert len(found) == 3
    return found


def damage(path: Path, kind: str, number: int = 10) -> None:
    """Cuts a segment's end off, or lets the length of one of its batches lie."""
    content = bytearray(path.read_bytes())
    if kind == "cut":
        path.write_bytes(content[:-CUT])
        return
    position = 0
    for _ in range(number):
        position += int.from_bytes(content[position + 8 : position + 12]) + 12
    length = {"huge": 0x7FFFFFFF, "zero": 0, "negative": 0xFFFFFFFF}[kind]
    content[position + 8 : position + 12] = length.to_bytes(4)
    path.write_bytes(content)


def in_many_ways(client: Client, offset: int) -> list[tuple[int, int]]:
    """(error, bytes of records) of a fetch by itself, beside an empty partition, and in a session, each twice."""
    answers: list[Any] = [client.fetch("t", version=version, offset=offset) for version in (4, 11, 12)]
    both = fetch_values("t", offset=offset)
    both["topics"].append({**fetch_values("empty")["topics"][0]})
    for _ in range(2):
        answers.append(client.ask("Fetch", 11, both).responses[0].partitions[0])
    first = client.ask("Fetch", 12, {**both, "session_id": 0, "session_epoch": 0})
    answers.append(first.responses[0].partitions[0])
    later = {**both, "topics": [], "session_id": first.session_id, "session_epoch": 1}
    again = client.ask("Fetch", 12, later)
    answers.extend(part for topic in again.responses for part in topic.partitions)
    return [(answer.error_code, len(answer.records or b"")) for answer in answers]


@pytest.mark.parametrize("kind", ["cut", "huge", "zero", "negative"])
def test_damaged_segment_is_said_once_and_answered_at_once(kind: str, kbroker_process: StartBroker) -> None:
    """Consumers would stand before it for ever, with error 0, while /readyz says that all is well."""
    broker = kbroker_process()
    first, *_ = filled(broker)
    with Client(broker.port) as client:
        client.create("empty")
    broker.stop()
    damage(first, kind)
    broker.start()
    with Client(broker.port) as client:
        bad = 19 if kind == "cut" else 10
        before = client.fetch("t", offset=bad - 1)
        assert before.error_code == 0
        assert before.records
        for error, size in in_many_ways(client, bad):
            assert (error, size) == (ErrorCode.CORRUPT_MESSAGE, 0)
        # Once it is known, the range before it ends at it.
        for error, size in in_many_ways(client, bad - 1):
            assert error == 0
            assert len(PADDING) < size < 2 * len(PADDING)
        # The index leads behind it; records of the next segment are there in any case.
        behind = 20 if kind == "cut" else bad + 1
        assert {error for error, _ in in_many_ways(client, behind)} == {0}
        assert client.fetch("t", offset=RECORDS - 1).error_code == 0
    told = [line for line in broker.output().splitlines() if "DAMAGED" in line]
    assert len(told) == 1
    assert f"{first} is DAMAGED at position" in told[0]
    assert "building it again" not in broker.output()
    assert "t-0: damaged, offset" in text_of(f"{broker.metrics_url.removesuffix('/metrics')}/readyz")
    assert scrape(broker.metrics_url)['kbroker_log_damages{kind="damaged"}'] == 1


def test_damage_can_be_skipped_truncated_and_restored(kbroker_process: StartBroker, tmp_path: Path) -> None:
    """What `kbroker logs explain` advises would not work."""
    broker = kbroker_process()
    first, *_ = filled(broker)
    broker.stop()
    backup = tmp_path / "backup"
    shutil.copytree(broker.data_dir / "t-0", backup)
    damage(first, "zero")
    place = ("t", "0", "--directory", str(broker.data_dir))
    assert "offsets from 10 to 10" in logs("repair", *place, status=1)
    broker.start()
    with Client(broker.port) as client:
        assert client.fetch("t", offset=10).error_code == ErrorCode.CORRUPT_MESSAGE
    metrics = broker.metrics_url.removesuffix("/metrics")
    advice = logs("explain", "t", "0", "--metrics", metrics)
    assert f"kbroker logs repair t 0 --directory {broker.data_dir} --skip" in advice
    assert "--to-offset 11" in advice
    assert "damaged" in logs("list", "t", "--metrics", metrics)
    broker.stop()

    assert "bytes taken out" in logs("repair", *place, "--skip")
    assert logs("repair", *place) == "no damage\n"
    broker.start()
    with Client(broker.port) as client:
        assert offsets_there(client) == [*range(10), *range(11, RECORDS)]
    broker.stop()

    # Restored as the advice says: the file from a backup, without the segment's indexes.
    shutil.copy(backup / first.name, first)
    for suffix in (".index", ".timeindex"):
        first.with_suffix(suffix).unlink()
    broker.start()
    with Client(broker.port) as client:
        assert offsets_there(client) == list(range(RECORDS))
    broker.stop()

    damage(first, "cut")
    assert "ends at offset 19" in logs("repair", *place, "--truncate")
    broker.start()
    with Client(broker.port) as client:
        assert offsets_there(client) == list(range(19))
        assert client.write("t", Batch([(b"k", b"after")])) == 19
    assert "MISSING" not in broker.output()


def offsets_there(client: Client) -> list[int]:
    found: list[int] = []
    offset, end = 0, client.offset("t")
    while offset < end:
        answer = client.fetch("t", offset=offset)
        assert answer.error_code == 0
        data = bytes(answer.records)
        at = 0
        while len(data) - at > 61 and at + int.from_bytes(data[at + 8 : at + 12]) + 12 <= len(data):
            found.append(int.from_bytes(data[at : at + 8]))
            at += int.from_bytes(data[at + 8 : at + 12]) + 12
        offset = found[-1] + 1
    return found


@pytest.mark.parametrize("what", ["directory", "last segment", "emptied"])
def test_missing_data_is_said(what: str, kbroker_process: StartBroker) -> None:
    """Records would be gone, and new ones take their offsets, without a word."""
    broker = kbroker_process()
    *_, last = filled(broker)
    broker.stop()
    if what == "directory":
        shutil.rmtree(last.parent)
    elif what == "emptied":
        last.write_bytes(b"")
    else:
        for path in last.parent.glob(f"{last.stem}.*"):
            path.unlink()
    broker.start()
    assert "t-0: records are MISSING" in broker.output()
    assert "t-0: missing, offset" in text_of(f"{broker.metrics_url.removesuffix('/metrics')}/readyz")
    assert scrape(broker.metrics_url)['kbroker_log_damages{kind="missing"}'] == 1
    with Client(broker.port) as client:
        client.write("t", *[Batch([(b"k", PADDING)])] * 3)


@pytest.mark.parametrize("which", ["closed", "active"])
@pytest.mark.parametrize("cut", [CUT, 300_000, 1 << 30])
def test_segment_that_is_cut_while_it_is_served_is_said_and_answered(
    which: str, cut: int, kbroker_process: StartBroker
) -> None:
    """Consumers would lose their connection at each try, without a word from the broker."""
    broker = kbroker_process()
    path = filled(broker)[1 if which == "closed" else 2]
    first = int(path.stem)
    with Client(broker.port) as client:
        client.create("empty")
    there = max(0, 20 * BATCH_BYTES - cut)
    os.truncate(path, there)
    left = there // BATCH_BYTES
    with Client(broker.port) as client, pytest.raises(Closed):
        client.fetch("t", offset=first)
    with Client(broker.port) as client:
        for error, size in in_many_ways(client, first + left):
            assert (error, size) == (ErrorCode.CORRUPT_MESSAGE, 0)
        if left:
            assert [each.base_offset for each in headers(client.fetch("t", offset=first).records)] == [
                *range(first, first + left)
            ]
        assert client.write("t", Batch([(b"k", b"after")])) == RECORDS
        assert client.fetch("t", offset=RECORDS).error_code == 0
    told = [line for line in broker.output().splitlines() if "DAMAGED" in line]
    assert len(told) == 1
    assert f"{path} is DAMAGED at position {left * BATCH_BYTES}: the file ends at {there}" in told[0]
    assert f"t-0: damaged, offsets {first + left} to" in text_of(
        f"{broker.metrics_url.removesuffix('/metrics')}/readyz"
    )


def test_a_segment_that_is_gone_from_the_middle_is_damage(kbroker_process: StartBroker) -> None:
    """Consumers would go on behind the records that are lost, and one line of a long log would say so."""
    broker = kbroker_process()
    _, middle, _ = filled(broker)
    with Client(broker.port) as client:
        client.create("empty")
    assert broker.stop() == 0
    kept = broker.directory / "kept"
    kept.mkdir()
    for path in middle.parent.glob(f"{middle.stem}.*"):
        path.rename(kept / path.name)
    broker.start()
    with Client(broker.port) as client:
        assert {error for error, _ in in_many_ways(client, 19)} == {0}
        for offset in (20, 39):
            assert set(in_many_ways(client, offset)) == {(ErrorCode.CORRUPT_MESSAGE, 0)}
        assert {error for error, _ in in_many_ways(client, 40)} == {0}
    (told,) = [line for line in broker.output().splitlines() if "DAMAGED" in line]
    assert "offsets 20 to 39 are missing" in told
    assert "t-0: damaged, offsets 20 to 39" in text_of(f"{broker.metrics_url}/readyz")
    assert scrape(broker.metrics_url)['kbroker_log_damages{kind="damaged"}'] == 1
    said = logs("explain", "t", "0", "--metrics", broker.metrics_url)
    assert "offsets 20 to 39 are missing" in said and "--to-offset 40" in said
    assert broker.stop() == 0
    where = ("repair", "t", "0", "--directory", str(broker.data_dir))
    assert "offsets 20 to 39 are missing" in logs(*where, status=1)
    logs(*where, "--skip")
    assert "no damage" in logs(*where)
    broker.start()
    with Client(broker.port) as client:
        assert {error for error, _ in in_many_ways(client, 20)} == {0}
    assert broker.offsets("t") == {0: (0, RECORDS)}
    assert 'kbroker_log_damages{kind="damaged"}' not in {
        name for name, value in scrape(broker.metrics_url).items() if value
    }


def test_records_that_a_crash_took_from_the_middle_are_told(kbroker_process: StartBroker) -> None:
    """Nobody would look for what was written and is not there, as all that was left can be read."""
    broker = kbroker_process()
    _, middle, _ = filled(broker)
    broker.kill()
    for path in middle.parent.glob(f"{middle.stem}.*"):
        path.unlink()
    (broker.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    broker.start()
    assert "records are MISSING (offsets 20 to 39)" in broker.output()
    assert "t-0: missing, offsets 20 to 39" in text_of(f"{broker.metrics_url}/readyz")
    with Client(broker.port) as client:
        assert client.fetch("t", offset=20).error_code == 0
    for _ in range(2):
        assert broker.stop() == 0
        broker.start()
        with Client(broker.port) as client:
            assert client.fetch("t", offset=20).error_code == 0
    assert broker.offsets("t") == {0: (0, RECORDS)}
