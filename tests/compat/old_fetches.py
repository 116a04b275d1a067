"""Fetches of versions 0 to 3: what consumers that know no record batches get of whatever is stored.

`answers` fills topics and fetches them at each offset; what Kafka 3.9.1 answers is in `vectors/old_fetches.json`
(`python -m tests.compat.old_fetches` asks it again), as with `message_sets`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from kbroker._fast.records.record_batch import TruncatedBatchError
from kbroker.records.batch import Record, RecordBatchBuilder
from kbroker.records.compression import Codec
from tests.broker.client import Client, fetch_values, produce_values
from tests.compat.message_sets import (
    CODEC,
    FORMAT,
    PLAIN,
    T0,
    TIME,
    described,
    encode_messages,
    kafka_answers,
    stored_batches,
    write_record,
)

RECORD = Path(__file__).parent / "vectors" / "old_fetches.json"
DOWN = "message.downconversion.enable"


def _batch(codec: int = Codec.NONE, records: list[Record] = PLAIN, **values: Any) -> bytes:
    builder = RecordBatchBuilder(0, codec, **values)
    for record in records:
        builder.append(record.key, record.value, record.timestamp, record.headers)
    return bytes(builder.build())


ODD = [
    Record(0, T0 + 9, None, None),
    Record(1, -1, b"k", b"v" * 2000, (("h", b"x"), ("g", None))),
    Record(2, 0, b"", b""),
]
BATCHES = [
    _batch(),
    _batch(Codec.GZIP),
    _batch(Codec.NONE, ODD),
    _batch(Codec.LZ4, ODD),
    _batch(Codec.SNAPPY),
    _batch(Codec.NONE, PLAIN, producer_id=4711, producer_epoch=0, base_sequence=0),
]
MESSAGES = [encode_messages(PLAIN, magic, codec) for magic in (0, 1) for codec in (0, 1, 3)]
# Of each topic: settings, records by Produce v9, message sets by v2.
TOPICS: dict[str, tuple[dict[str, str], list[bytes], list[bytes]]] = {
    "batches": ({}, BATCHES, []),
    # The last batch keeps all ends of messages off the limits: compressed sets differ by some bytes with the time.
    "append": ({TIME: "LogAppendTime"}, [*BATCHES, _batch()], []),
    "zstd": ({}, [_batch(), _batch(Codec.ZSTD), _batch()], []),
    "all-zstd": ({CODEC: "zstd"}, [_batch()], []),
    "refused": ({DOWN: "false"}, [_batch()], []),
    "v1": ({FORMAT: "0.10.2"}, [], MESSAGES),
    "v0": ({FORMAT: "0.9.0"}, [], MESSAGES),
    "v1-refused": ({FORMAT: "0.10.2", DOWN: "false"}, [], MESSAGES[:1]),
}


def answers(port: int) -> dict[str, Any]:
    """By topic, version and offset: the error and the messages, by offsets from the first on."""
    found: dict[str, Any] = {}
    with Client(port) as client:
        for topic, (configs, batches, sets) in TOPICS.items():
            name = f"fetched-{topic}"
            client.create(name, configs=configs)
            client.write(name, *batches)
            for each in sets:
                values = produce_values(name, each, acks=1)
                answer = client.ask("Produce", 2, values).responses[0].partition_responses[0]
                assert answer.error_code == 0
            end = client.offset(name)
            for version in range(4):
                for offset in range(end + 2):
                    found[f"{topic} v{version} {offset}"] = _fetched(client, name, version, offset)
                for limit in (0, 5, 20, 80, 150):
                    found[f"{topic} v{version} limit {limit}"] = _fetched(client, name, version, 0, limit=limit)
    return found


def _fetched(client: Client, topic: str, version: int, offset: int, **values: Any) -> dict[str, Any]:
    asked = fetch_values(topic, offset=offset, **values)
    answer = client.ask("Fetch", version, asked).responses[0].partitions[0]
    row: dict[str, Any] = {"error_code": answer.error_code, "high_watermark": answer.high_watermark}
    data = bytes(answer.records or b"")
    rows = []
    # Kafka pads what it converts with a part of a message.
    with suppress(TruncatedBatchError):
        for batch, info in stored_batches(data):
            rows.append(described(batch, info, 0))
    row["messages"] = rows
    return row


if __name__ == "__main__":
    write_record(RECORD, kafka_answers(answers))
