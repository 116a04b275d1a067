"""A batch whose magic or base offset was changed on the disk: no checksum covers either, and no read looks at them."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.client import Batch, Client
from tests.broker_process import BrokerProcess

MAGIC_AT = 16


@pytest.mark.parametrize(
    ("at", "field", "words"),
    [
        (MAGIC_AT, b"\x09", "Invalid magic found in record: 9"),
        (0, struct.pack(">q", 100), "is not past the batch before it"),
    ],
    ids=["magic", "base offset"],
)
def test_a_changed_header_is_served_as_by_kafka_and_found_by_a_repair(
    tmp_path: Path, at: int, field: bytes, words: str
) -> None:
    """An operator who looks for the cause of a consumer's error would be shown a sound log."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    with Client(broker.port) as client:
        client.create("changed")
        client.write("changed", Batch(), Batch(), Batch())
    broker.stop()
    (log,) = (broker.data_dir / "changed-0").glob("*.log")
    data = bytearray(log.read_bytes())
    second = len(data) // 3
    data[second + at : second + at + len(field)] = field
    log.write_bytes(data)
    arguments = ["logs", "repair", "changed", "0", "--directory", str(broker.data_dir)]
    found = subprocess.run(
        [sys.executable, "-m", "kbroker.cli", *arguments], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1 and words in found.stdout
    with broker, Client(broker.port) as client:
        assert bytes(client.fetch("changed").records) == bytes(data)
