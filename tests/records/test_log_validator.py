"""Validation and offsets: Kafka's answers to the same batches, and what is stored in each case."""

from __future__ import annotations

import base64
import gzip
import json
import pathlib
import re
from typing import Any

import pytest

from kbroker._fast.records.record_batch import validate
from kbroker._fast.records.record_stream import walk_decompressed
from kbroker.config import LogConfig
from kbroker.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from kbroker.records.batch import RecordBatchBuilder, iterate_records
from kbroker.records.compression import Codec, compress, iter_decompress
from kbroker.records.control import ControlType, build_end_transaction
from kbroker.storage.log import log_validator
from kbroker.storage.log.log_validator import (
    AnalyzedBatch,
    AppendOrigin,
    RecordValidationError,
    assign_offsets,
    decompression_limit_bytes,
    takes_long,
    validate_and_analyze,
)
from tests.records.reference import encode_batch, simple_records

VECTORS = pathlib.Path(__file__).parent / "vectors"
ANSWERS = json.loads((VECTORS / "produce_answers.json").read_text())
NOW_MS: int = ANSWERS["now_ms"]
HOUR_MS = 3_600_000
COMPACT = frozenset({"compact"})

CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compact": {"cleanup_policy": COMPACT},
    "appendtime": {"message_timestamp_type": "LogAppendTime"},
    "bounds": {"message_timestamp_before_max_ms": HOUR_MS, "message_timestamp_after_max_ms": HOUR_MS},
    "boundscompact": {
        "cleanup_policy": COMPACT,
        "message_timestamp_before_max_ms": HOUR_MS,
        "message_timestamp_after_max_ms": HOUR_MS,
    },
    "small": {"max_message_bytes": 1000},
    **{f"t{name}": {"compression_type": name} for name in ("gzip", "snappy", "lz4", "zstd", "uncompressed")},
}

# Where the answer is another than Kafka's on purpose: pattern of the case's name -> (Kafka's code, ours, why).
UNKNOWN, OK, INVALID = -1, 0, int(ErrorCode.INVALID_RECORD)
DEVIATIONS: list[tuple[str, int, int, str]] = [
    ("size below overhead", UNKNOWN, int(ErrorCode.CORRUPT_MESSAGE), "Kafka fails on it with an unexpected exception"),
    ("codec [57]", UNKNOWN, int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), "likewise"),
    ("varint too long size", UNKNOWN, INVALID, "likewise"),
    (r"codec \d (garbage|empty|truncated|truncated 20|trailing|out of order)", UNKNOWN, INVALID, "likewise"),
    ("lz4 linked many blocks", UNKNOWN, INVALID, "likewise"),
    ("deltas .*|delta huge", OK, INVALID, "Kafka stores offsets twice or with holes"),
    ("(codec . )?key (length )?-2", OK, INVALID, "no client writes it; -1 is null"),
    ("codec . record length .*", OK, INVALID, "Kafka skips over what consumers then cannot read"),
    ("codec [13] trailing", OK, INVALID, "strict consumers fail on it"),
]


def without_now(text: str | None) -> str | None:
    """Bounds come from the broker's clock: only their distance can be compared."""
    if text is None:
        return None
    return re.sub(r"within \[(-?\d+), (\d+)\]", lambda match: f"within {int(match[2]) - int(match[1])}", text)


def answer_of(batch: bytes, config: LogConfig) -> tuple[int, str | None, list[list[Any]], KafkaError | None]:
    try:
        analyzed = validate_and_analyze(bytearray(batch), config, NOW_MS, topic_partition="topic-0", produce_version=8)
    except RecordValidationError as error:
        return int(error.code), error.message, [list(bad) for bad in error.record_errors], error
    except KafkaError as error:
        return int(error.code), None, [], error
    checked(analyzed)
    return 0, None, [], None


def checked(analyzed: AnalyzedBatch) -> AnalyzedBatch:
    """`analyzed`, once its offsets are assigned and what would be stored was judged anew."""
    data = assign_offsets(analyzed, 1000, 7)
    assert len(data) == analyzed.size_in_bytes
    info = validate(data)
    if info.compression:
        walk_decompressed(info, iter_decompress(info.compression, memoryview(data)[61:]))
    assert (info.base_offset, info.partition_leader_epoch) == (1000, 7)
    for name in ("base_offset", "last_offset", "crc", "attributes", "max_timestamp", "records_count", "size_in_bytes"):
        assert getattr(analyzed.info, name) == getattr(info, name), name
    assert info.compression == analyzed.target_codec
    return analyzed


@pytest.mark.parametrize("case", ANSWERS["cases"], ids=[f"{case['name']}" for case in ANSWERS["cases"]])
def test_answers_are_kafkas(case: dict[str, Any]) -> None:
    """A client would be told something else than by Kafka, and act differently."""
    name, topic = case["name"], case["topic"]
    code, message, record_errors, error = answer_of(base64.b64decode(case["batch"]), LogConfig(**CONFIGS[topic]))
    for pattern, kafkas, ours, _reason in DEVIATIONS:
        if re.fullmatch(pattern, name) and case["code"] == kafkas:
            assert code == ours
            assert error is not None
            assert error.message
            return
    assert code == case["code"], error
    if error is not None:
        assert error.message
    if isinstance(error, RecordValidationError):
        expected = [
            [index, without_now(text.replace(f"{topic}-0", "topic-0"))] for index, text in case["record_errors"]
        ]
        found = [[index, without_now(text)] for index, text in record_errors]
        if name != "overflowing timestamp":
            assert found == expected
            assert message == case["message"].replace(f"{topic}-0", "topic-0")
        assert [index for index, _ in found] == [index for index, _ in expected]


def test_deviations_are_all_used() -> None:
    """The list of differences would claim some that are none."""
    for pattern, kafkas, _ours, _reason in DEVIATIONS:
        assert any(re.fullmatch(pattern, case["name"]) and case["code"] == kafkas for case in ANSWERS["cases"]), pattern


def batch_of(codec: int = 0, count: int = 20, **fields: Any) -> bytearray:
    """A batch with ever later timestamps, the latest not last."""
    values: list[bytes | None] = [b"value %d " % index * 9 for index in range(count)]
    deltas = [index if index % 2 else 2 * index for index in range(count)]
    payload = simple_records(values, deltas=deltas)
    fields = {"base_timestamp": NOW_MS, "max_timestamp": NOW_MS + max(deltas), "attributes": codec, **fields}
    return encode_batch(compress(codec, payload), count, **fields)


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_every_codec_to_every_other(source: Codec, target: str, timestamp_type: str) -> None:
    """Records would change, or get another time, where the topic's settings differ from the producer's."""
    sent = batch_of(source, producer_id=5, producer_epoch=1, base_sequence=40)
    original = bytes(sent)
    config = LogConfig(compression_type=target, message_timestamp_type=timestamp_type)
    analyzed = checked(validate_and_analyze(sent, config, NOW_MS))
    info = analyzed.info
    assert analyzed.source_codec == source
    assert analyzed.needs_rebuild == (analyzed.target_codec != source)
    assert (analyzed.view is sent) == (not analyzed.needs_rebuild)
    assert (info.producer_id, info.producer_epoch, info.base_sequence, info.last_sequence) == (5, 1, 40, 59)
    stored, before = list(iterate_records(analyzed.view)), list(iterate_records(original))
    if timestamp_type == "LogAppendTime":
        assert {record.timestamp for record in stored} == {NOW_MS}
        assert (info.max_timestamp, info.offset_of_max_timestamp) == (NOW_MS, 1019)
    else:
        assert [record.timestamp for record in stored] == [record.timestamp for record in before]
        assert (info.max_timestamp, info.offset_of_max_timestamp) == (NOW_MS + 36, 1018)
    assert [record[2:] for record in stored] == [record[2:] for record in before]
    assert [record.offset for record in stored] == list(range(1000, 1020))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_max_timestamp_that_lies_is_corrected(codec: Codec) -> None:
    """Retention and lookups by time would go by what a client claims."""
    analyzed = checked(validate_and_analyze(batch_of(codec, max_timestamp=NOW_MS + 10**9), LogConfig(), NOW_MS))
    assert analyzed.info.max_timestamp == NOW_MS + 36


def test_append_time_claimed_by_a_producer_is_taken_back() -> None:
    """A CreateTime topic would hold batches with another timestamp type."""
    analyzed = checked(validate_and_analyze(batch_of(attributes=8), LogConfig(), NOW_MS))
    assert (analyzed.info.timestamp_type, analyzed.info.max_timestamp) == (0, NOW_MS + 36)


def test_the_common_case_keeps_the_bytes() -> None:
    """Every produce would copy its records."""
    sent = batch_of()
    before = bytes(sent)
    analyzed = validate_and_analyze(memoryview(sent), LogConfig(), NOW_MS)
    assert not analyzed.needs_rebuild
    assert assign_offsets(analyzed, 5, 6) is analyzed.view
    assert sent[12 + 4 :] == before[12 + 4 :]
    assert sent[:8] == (5).to_bytes(8, "big")


def test_bytes_after_the_batch_are_left_out() -> None:
    """The log would hold garbage behind the batch."""
    sent = batch_of()
    analyzed = checked(validate_and_analyze(sent + b"garbage", LogConfig(), NOW_MS))
    assert analyzed.size_in_bytes == len(sent)


def test_max_message_bytes_holds_after_recompression() -> None:
    """A topic's limit could be passed by sending compressed what is stored uncompressed."""
    sent = batch_of(Codec.ZSTD, count=200)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=len(sent) + 100)
    with pytest.raises(MessageTooLargeError, match="which exceeds the maximum configured size"):
        validate_and_analyze(sent, config, NOW_MS, topic_partition="t-0")
    with pytest.raises(MessageTooLargeError, match=r"The record batch size in the append to t-0 is \d+ bytes"):
        validate_and_analyze(sent, LogConfig(max_message_bytes=100), NOW_MS, topic_partition="t-0")


def bomb(codec: int, size: int) -> bytearray:
    """A single record of `size` zeros."""
    builder = RecordBatchBuilder(compression=codec)
    builder.append(None, bytes(size), NOW_MS)
    return builder.build()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("target", ["producer", "gzip", "uncompressed"])
def test_bombs_are_refused(codec: Codec, target: str) -> None:
    """A small request would stall the broker for everybody."""
    with pytest.raises(MessageTooLargeError):
        validate_and_analyze(bomb(codec, 64 << 20), LogConfig(compression_type=target), NOW_MS)


def test_well_compressed_data_is_taken() -> None:
    """Honest data that compresses well would be refused."""
    sent = bomb(Codec.ZSTD, 7 << 20)
    assert len(sent) < 2000
    checked(validate_and_analyze(sent, LogConfig(), NOW_MS))
    assert decompression_limit_bytes(len(sent)) == 8 << 20
    assert decompression_limit_bytes(1 << 20) == 128 << 20


def test_zstd_needs_produce_7() -> None:
    """Old consumers would meet batches that they cannot read."""
    with pytest.raises(UnsupportedCompressionTypeError, match="version 6 are not allowed to use ZStandard"):
        validate_and_analyze(batch_of(Codec.ZSTD), LogConfig(), NOW_MS, produce_version=6)
    damaged = batch_of(Codec.ZSTD)
    damaged[70] ^= 1
    with pytest.raises(UnsupportedCompressionTypeError):
        validate_and_analyze(damaged, LogConfig(), NOW_MS, produce_version=6)


@pytest.mark.parametrize("damage", [0, 1], ids=["sound", "damaged"])
@pytest.mark.parametrize(
    ("first", "then", "error"),
    [
        ({"attributes": Codec.ZSTD}, {"base_offset": 9}, UnsupportedCompressionTypeError),
        ({"base_offset": 9}, {"count": 200}, InvalidRecordError),
        ({"count": 200}, {"attributes": 0x20}, MessageTooLargeError),
        ({"count": 200}, {"producer_id": 7}, MessageTooLargeError),
    ],
)
def test_of_two_faults_the_one_that_kafka_looks_at_first_is_said(
    first: dict[str, int], then: dict[str, int], error: type[KafkaError], damage: int
) -> None:
    """A producer would not split a batch that is too large, because of what Kafka says only of one that fits; and a
    bad checksum would change which of the other faults is said."""
    fields = {"count": 2} | first | then
    count = fields.pop("count")
    batch = encode_batch(simple_records([b"value"] * count), count, max_timestamp=NOW_MS, **fields)
    batch[-1] ^= damage
    with pytest.raises(error):
        validate_and_analyze(batch, LogConfig(max_message_bytes=500), NOW_MS, produce_version=6)


def test_the_broker_may_write_control_batches() -> None:
    """Transactions could not end, or any client could end them."""
    marker = build_end_transaction(ControlType.COMMIT, 0, 5, 1, NOW_MS)
    config = LogConfig(compression_type="zstd")
    analyzed = checked(validate_and_analyze(marker, config, NOW_MS, origin=AppendOrigin.COORDINATOR))
    assert not analyzed.needs_rebuild
    with pytest.raises(InvalidRecordError, match="Clients are not allowed to write control records"):
        validate_and_analyze(build_end_transaction(ControlType.COMMIT, 0, 5, 1, NOW_MS), config, NOW_MS)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"base_offset": 9}, InvalidRecordError, "baseOffset of the record batch in the append to t-0 should be 0"),
        ({"records_count": 3}, InvalidRecordError, "Inconsistent batch offset range .* in topic partition t-0"),
        ({"last_offset_delta": -5}, InvalidRecordError, "invalid offset range"),
    ],
)
def test_texts_name_the_partition(change: dict[str, int], error: type[KafkaError], text: str) -> None:
    """The log line of a refused batch would not say where it was meant to go."""
    with pytest.raises(error, match=text):
        validate_and_analyze(batch_of(**change), LogConfig(), NOW_MS, topic_partition="t-0")


def test_damage_is_corrupt() -> None:
    """A client would not send again what the network damaged."""
    sent = batch_of()
    sent[100] ^= 1
    with pytest.raises(CorruptMessageError, match=r"stored crc = \d+, .* in topic partition t-0"):
        validate_and_analyze(sent, LogConfig(), NOW_MS, topic_partition="t-0")


def test_named_records_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of a hundred thousand bad records would be answered with megabytes of text."""
    monkeypatch.setattr(log_validator, "MAX_RECORD_ERRORS", 5)
    count = 50
    payload = simple_records([b"v"] * count, keys=[None] * count)
    for codec, body in ((0, payload), (1, gzip.compress(payload))):
        batch = encode_batch(body, count, attributes=codec, base_timestamp=NOW_MS, max_timestamp=NOW_MS)
        with pytest.raises(RecordValidationError, match="due to 50 record errors") as caught:
            validate_and_analyze(batch, LogConfig(cleanup_policy=COMPACT), NOW_MS)
        assert [bad.batch_index for bad in caught.value.record_errors] == [0, 1, 2, 3, 4]


def test_every_changed_byte_is_refused_or_harmless() -> None:
    """A changed byte in a compressed batch would be stored as the user's data."""
    sent = batch_of(Codec.LZ4, count=3)
    for at in range(len(sent)):
        damaged = bytearray(sent)
        damaged[at] ^= 0x10
        if 12 <= at < 16:
            checked(validate_and_analyze(damaged, LogConfig(), NOW_MS))
        else:
            with pytest.raises(KafkaError):
                validate_and_analyze(damaged, LogConfig(), NOW_MS)


def test_what_takes_long() -> None:
    """A large batch would hold the loop while a codec runs over it, or small ones would wait for a thread in vain."""
    large, small = bytes(100_000), b"x"
    for codec, config, expected in (
        (0, LogConfig(), False),
        (0, LogConfig(compression_type="uncompressed"), False),
        (0, LogConfig(compression_type="gzip"), True),
        (4, LogConfig(), True),
    ):
        assert takes_long(encode_batch(large, 1, attributes=codec), config) is expected
        assert takes_long(encode_batch(small, 1, attributes=codec), config) is False
    assert takes_long(memoryview(b""), LogConfig()) is False
