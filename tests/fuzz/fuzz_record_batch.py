"""Coverage-guided fuzzing of record batches: `python -m tests.fuzz.fuzz_record_batch [SECONDS]`.

An input's first byte says what the rest is:

* the records of an uncompressed batch, whose header and checksum are made right: the C walk, the walk in chunks and the
  reader of records must take or refuse them as the slow reference of the tests does;
* a compressed payload: whatever comes of it, nothing but a refusal may be raised, and the way through C must take or
  refuse it as the way through Python does;
* a whole batch, its size and checksum put right: it goes through the validation of a produce request, and what that
  takes must be valid again when it is stored;
* raw bytes, for the readers that meet damaged files.

The engine, atheris, sees which lines of the reference and of the codecs run and steers by them.  Without atheris, seeds
are damaged at random instead.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import atheris

    instrumented: Any = atheris.instrument_imports(
        include=["tests.records.reference", "kbroker.records.compression", "kbroker.storage.log.log_validator"]
    )
except ImportError:
    atheris = None
    instrumented = contextlib.nullcontext()

with instrumented:
    from kbroker._fast.records.record_batch import (
        BatchError,
        BatchInfo,
        InvalidRecordsError,
        iterate_batches,
        read_header,
        validate,
    )
    from kbroker._fast.records.record_stream import walk_decompressed
    from kbroker.config import LogConfig
    from kbroker.errors import KafkaError
    from kbroker.records import compression
    from kbroker.records.batch import iterate_records
    from kbroker.storage.log.log_validator import assign_offsets, validate_and_analyze
    from tests.records import reference

MAX_INPUT = 4096
LIMIT_BYTES = 1 << 20
NOW_MS = 1_700_000_000_000
CONFIGS = [
    LogConfig(),
    LogConfig(message_timestamp_type="LogAppendTime"),
    LogConfig(compression_type="zstd", cleanup_policy=frozenset({"compact"})),
    LogConfig(compression_type="uncompressed", message_timestamp_before_max_ms=1000),
]


def run_one(data: bytes) -> None:
    """Judges one input; any exception out of here is a find."""
    if len(data) < 2:
        return
    kind, detail, rest = data[0] & 3, data[0] >> 2, data[1:]
    if kind == 0:
        run_records(rest[1:], 1 + rest[0] % 8, 1 + detail)
    elif kind == 1:
        run_compressed(rest, 1 + detail % 4)
    elif kind == 2:
        run_batch(rest, CONFIGS[detail % 4])
    else:
        run_raw(rest)


def run_records(payload: bytes, count: int, chunk_bytes: int) -> None:
    batch = reference.encode_batch(payload, count, base_timestamp=NOW_MS)
    try:
        expected = reference.walk(payload, count)
    except reference.MalformedError:
        expected = None
    chunks = [payload[at : at + chunk_bytes] for at in range(0, len(payload), chunk_bytes)]
    walks: list[Callable[[], BatchInfo]] = [
        lambda: validate(batch),
        lambda: walk_decompressed(read_header(batch), chunks),
    ]
    for walk in walks:
        try:
            info = walk()
        except InvalidRecordsError as error:
            assert expected is None, f"good records were refused: {error}"
            continue
        assert expected is not None, "bad records were taken"
        assert info.keyless_count == sum(record.key is None for record in expected)
    with contextlib.suppress(BatchError):
        found = [(record.key, record.value) for record in iterate_records(batch)]
        assert expected is None or found == [(record.key, record.value) for record in expected]


def run_compressed(payload: bytes, codec: int) -> None:
    size = 0
    chunks: list[bytes] = []
    expected: bytes | None = None
    whole: bytes | None = None
    with contextlib.suppress(compression.CompressionError):
        for chunk in compression.iter_decompress(codec, payload, LIMIT_BYTES):
            size += len(chunk)
            chunks.append(bytes(chunk))
        expected = b"".join(chunks)
    assert size <= LIMIT_BYTES
    with contextlib.suppress(compression.CompressionError):
        whole = compression.decompress(codec, payload, LIMIT_BYTES)
    assert whole == expected, "the two ways to decompress differ"


def run_batch(data: bytes, config: LogConfig) -> None:
    if len(data) < reference.OVERHEAD:
        return
    batch = reference.seal(data)
    batch[:8] = bytes(8)
    batch[16] = 2
    try:
        analyzed = validate_and_analyze(batch, config, NOW_MS)
    except KafkaError:
        return
    stored = assign_offsets(analyzed, 77, 3)
    info = validate(stored)
    assert len(stored) == info.size_in_bytes == analyzed.size_in_bytes
    records = list(iterate_records(stored))
    assert [record.offset for record in records] == list(range(77, 77 + info.records_count))


def run_raw(data: bytes) -> None:
    with contextlib.suppress(BatchError):
        list(iterate_batches(data))
    with contextlib.suppress(BatchError):
        validate(data)
    with contextlib.suppress(BatchError, compression.CompressionError):
        list(iterate_records(data, limit_bytes=LIMIT_BYTES))
    with contextlib.suppress(KafkaError):
        validate_and_analyze(bytearray(data), CONFIGS[0], NOW_MS)


def seeds() -> list[bytes]:
    """Good inputs of each kind."""
    records = [
        reference.ReferenceRecord(0, 0, b"key", b"value", ((b"header", b"value"), (b"null", None))),
        reference.ReferenceRecord(1, 300, None, b"v" * 100),
        reference.ReferenceRecord(2, -5, b"", None),
    ]
    payload = b"".join(map(reference.encode_record, records))
    found = [bytes([detail << 2, 2]) + payload for detail in (0, 6, 63)]
    for codec in range(5):
        data = compression.compress(codec, payload)
        found.append(bytes([(max(codec, 1) - 1) << 2 | 1]) + data)
        batch = bytes(
            reference.encode_batch(data, 3, attributes=codec, base_timestamp=NOW_MS, max_timestamp=NOW_MS + 300)
        )
        found += [bytes([detail << 2 | 2]) + batch for detail in range(4)]
        found.append(b"\x03" + batch * 2)
    return found


def fuzz_with_atheris(seconds: int) -> None:
    """Never returns: libFuzzer ends the process, with 0 when the time is up without a find."""
    with tempfile.TemporaryDirectory(prefix="kbroker-fuzz-") as corpus:
        for number, seed in enumerate(seeds()):
            (Path(corpus) / f"{number:05}").write_bytes(seed)
        arguments = [sys.argv[0], f"-max_total_time={seconds}", f"-max_len={MAX_INPUT}", "-rss_limit_mb=1024", corpus]
        atheris.Setup(arguments, run_one)
        atheris.Fuzz()


def fuzz_at_random(seconds: int) -> None:
    """What is left without atheris: seeds, cut, spliced and with bytes replaced."""
    rng = random.Random()
    corpus = seeds()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(1000):
            damaged = bytearray(rng.choice(corpus))
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            if rng.random() < 0.3:
                del damaged[rng.randrange(2, len(damaged) + 1) :]
            elif rng.random() < 0.3:
                damaged += rng.choice(corpus)
            run_one(bytes(damaged[:MAX_INPUT]))


def main() -> None:
    text = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FUZZ_SECONDS", "60")
    if atheris is None:
        fuzz_at_random(int(text))
    else:
        fuzz_with_atheris(int(text))


if __name__ == "__main__":
    main()
