"""What compaction costs: `pytest bench/test_cleaner.py`.

The whole clean is measured as Kafka's was: 10 million records of 115 bytes over a million keys, one thread, both
passes.  `log_bytes_per_s` is the log's size by the time that its clean took; for compressed logs, which are smaller
ones, that of their uncompressed bytes.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.keyed_log import RECORD_BYTES, write_log
from kbroker._fast.base.md5 import md5_many
from kbroker._fast.clean.offset_map import OffsetMap
from kbroker.config import LogConfig
from kbroker.records.compression import Codec
from kbroker.storage.cleaner.cleaner import Cleaner, CleanSummary
from kbroker.storage.files.filesystem import SYSTEM_FILES
from kbroker.storage.log.unified_log import UnifiedLog
from tests.cleaner.logs import clean
from tests.storage.batches import open_log

KEYS = 1_000_000
MAP_BYTES = 134_217_728
BUFFER_BYTES = 262_144
SEGMENT_BYTES = 400 << 20
MESSAGES = [b"key-%012d" % at for at in range(1000)] * 100


def tell_rate(benchmark: Any, name: str, amount: int) -> None:
    benchmark.extra_info[name] = f"{amount / benchmark.stats.stats.min:,.0f}"


@pytest.mark.benchmark(group="md5 of 16-byte keys")
def test_md5_in_groups(benchmark: Any) -> None:
    benchmark(md5_many, MESSAGES)
    tell_rate(benchmark, "keys_per_s", len(MESSAGES))


@pytest.mark.benchmark(group="md5 of 16-byte keys")
def test_md5_by_hashlib(benchmark: Any) -> None:
    benchmark(lambda: [hashlib.md5(message).digest() for message in MESSAGES])
    tell_rate(benchmark, "keys_per_s", len(MESSAGES))


@pytest.mark.benchmark(group="offset map")
def test_offset_map_one_by_one(benchmark: Any) -> None:
    """Through Python, key by key: the passes do it in groups, in C."""
    offsets = OffsetMap(MAP_BYTES)

    def add_all() -> None:
        for offset, message in enumerate(MESSAGES):
            offsets.add(message, offset)

    benchmark(add_all)
    tell_rate(benchmark, "keys_per_s", len(MESSAGES))


def opened(directory: Path) -> UnifiedLog:
    settings = LogConfig(
        cleanup_policy=frozenset({"compact"}), internal_segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=0
    )
    log = open_log(directory, settings)
    log.roll()
    return log


@pytest.mark.parametrize(
    ("codec", "records"), [(Codec.NONE, 10_000_000), (Codec.LZ4, 2_000_000), (Codec.ZSTD, 2_000_000)]
)
@pytest.mark.benchmark(group="clean")
def test_clean(benchmark: Any, codec: Codec, records: int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_log(source, records, KEYS, SEGMENT_BYTES, codec)
    worker = Cleaner(SYSTEM_FILES, MAP_BYTES, 0.9, BUFFER_BYTES)
    logs: list[UnifiedLog] = []

    def prepare() -> tuple[tuple[UnifiedLog], dict[str, object]]:
        for log in logs:
            log.close(clean=False)
            shutil.rmtree(log.directory)
        directory = tmp_path / f"table-{len(logs)}"
        shutil.copytree(source, directory)
        logs[:] = [opened(directory)]
        return (logs[0],), {}

    def run(log: UnifiedLog) -> CleanSummary | None:
        return clean(log, worker=worker, files=SYSTEM_FILES)

    summary = benchmark.pedantic(run, setup=prepare, rounds=3)
    assert summary is not None
    assert summary.records_read == records
    tell_rate(benchmark, "log_bytes_per_s", records * RECORD_BYTES)
    tell_rate(benchmark, "records_per_s", records)
