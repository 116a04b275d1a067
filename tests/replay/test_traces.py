"""Readers of traces: what each format becomes, and what becomes of rows that are none.

Also of `kbroker.replay.traces.entry_frame`, `kbroker.replay.traces.reading`.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kbroker.replay.trace_schema import TRACE_SCHEMA
from kbroker.replay.traces import Trace, TraceError, parse_mapping, read_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SHARED = Path(os.environ.get("KBROKER_TRACES", "no-traces"))
START = 1_700_158_623_979_960  # 2023-11-16 18:17:03.979960 UTC
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319606,3180,8
"""


def mapping(trace_format: str, time: dict[str, Any] | str, record: dict[str, Any], **more: Any) -> Any:
    times = {"column": time} if isinstance(time, str) else time
    return parse_mapping("mine", {"format": trace_format, "time": times, "record": record, **more})


def rows(trace: Trace) -> list[dict[str, Any]]:
    found = trace.rows.orderBy("sequence").collect()
    return [row.asDict(recursive=True) for row in found]


def raw_reasons(trace: Trace) -> list[tuple[str, str]]:
    return sorted((row["reason"], row["raw"]) for row in trace.malformed.collect())


def test_a_row_of_csv_becomes_its_records(spark: SparkSession, tmp_path: Path) -> None:
    """Times would be off by the digits after the microsecond, and replies that a row stands for would be missing."""
    (tmp_path / "code.csv").write_text(AZURE.replace("\n", "\r\n"))
    trace = read_trace(spark, [str(tmp_path / "code.csv")], mapping="azure-llm-code")
    found = rows(trace)
    assert trace.rows.schema.simpleString() == TRACE_SCHEMA.simpleString()
    times = [START, START + 200_000, START + 52_001, START + 52_001 + 160_000]
    assert [row["arrival_time"] for row in found] == times
    assert [(row["topic"], row["value_size"], row["value"], row["key"]) for row in found] == [
        ("llm.code", 19232, None, None), ("llm.code.reply", 40, None, None),
        ("llm.code", 12720, None, None), ("llm.code.reply", 32, None, None),
    ]  # fmt: skip
    assert found[0]["headers"] == [{"key": "tokens", "value": b"4808"}]
    assert trace.reasons() == {}


def test_rows_that_are_none_come_out_with_their_reason(spark: SparkSession, tmp_path: Path) -> None:
    """Rows would vanish from a trace, or one of them would stop the reading of all."""
    lines = [
        "2024-01-01T00:00:00Z,a,10,produce", "yesterday,a,11,produce", "2024-01-01T00:00:02Z,a,12",
        "2024-01-01T00:00:03Z,,13,produce", "2024-01-01T00:00:03Z,c,-5,produce", "2024-01-01T00:00:03Z,c,many,produce",
        "2024-01-01T00:00:04Z,d,15,eat", '2024-01-01T01:00:05+01:00,"e,1",16,CONSUME',
    ]  # fmt: skip
    (tmp_path / "bad.csv").write_text("when,client,n,op\n" + "\n".join(lines) + "\n\n")
    rule = mapping("csv", "when", {"source": "{client}", "topic": "t", "size": "4 * n", "kind": "{op}"})
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    trace = read_trace(spark, [str(tmp_path)], mapping=rule)
    found = rows(trace)
    assert [(row["source"], row["value_size"], row["kind"]) for row in found] == [
        ("a", 40, "produce"), ("e,1", 64, "consume"),
    ]  # fmt: skip
    assert found[1]["arrival_time"] - found[0]["arrival_time"] == 5_000_000
    assert raw_reasons(trace) == sorted([
        ("bad time", lines[1]), ("not in the format", lines[2]), ("no source", lines[3]), ("bad size", lines[4]),
        ("bad size", lines[5]), ("bad kind", lines[6]),
    ])  # fmt: skip
    assert trace.reasons()["bad size"] == 2
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"


def test_columns_that_are_not_there_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """The user would see Spark's plan instead of the word to correct."""
    (tmp_path / "code.csv").write_text(AZURE)
    rule = mapping("csv", "TIMESTAMP", {"source": "{client}", "topic": "t"})
    wanted = r"record.source: there is no column 'client'; the columns are: TIMESTAMP, ContextTokens, GeneratedTokens"
    with pytest.raises(TraceError, match=wanted):
        read_trace(spark, [str(tmp_path)], mapping=rule)
    with pytest.raises(TraceError, match="is not an expression"):
        read_trace(spark, [str(tmp_path)], mapping=mapping("csv", "TIMESTAMP", {"source": "{1 +}", "topic": "t"}))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match="convert them one by one"):
        read_trace(spark, [str(tmp_path)], mapping="azure-llm-code")


def test_json_lines_take_expressions_over_arrays(spark: SparkSession, tmp_path: Path) -> None:
    """Keys inside of arrays could not be used, and lines that are no objects would be lost."""
    lines = [
        {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]},
        {"timestamp": 1500, "input_length": 10, "output_length": 3, "hash_ids": [7]},
        {"timestamp": None, "input_length": 10, "output_length": 3, "hash_ids": [7]},
    ]
    text = "\n".join([*(json.dumps(line) for line in lines), "[1]", '{"timestamp": 12, "inp'])
    (tmp_path / "trace.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    trace = read_trace(spark, [str(tmp_path)], mapping="mooncake")
    assert [(row["arrival_time"], row["key"], row["value_size"]) for row in rows(trace)] == [
        (0, b"1", 4 * 6758), (1_500_000, b"7", 40),
    ]  # fmt: skip
    assert trace.reasons() == {"not in the format": 2, "bad time": 1}
    lines_as_values = rows(read_trace(spark, [str(tmp_path)], mapping="mooncake-lines"))
    assert lines_as_values[0]["value"] == json.dumps(lines[0]).encode()


ACCESS = [
    b'1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 203023 "http://x/" "Agent (1)"',
    b'2001:db8::1 - frank smith [17/May/2015:12:05:03 +0200] "GET /b" 404 -',
    b'www.example.com:80 1.2.3.4 - - [17/May/2015:10:05:04 +0000] "GET /c HTTP/1.1" 200 5 "-" "cut off',
    b'1.2.3.4 - - [17/May/2015:10:05:05 +0000] "GET /"q" HTTP/1.1" 400 5 "-" "-" 0.013 "more"',
    b'1.2.3.4 - - [17/May/2015:10:05:06 +0000] "\\x16\\x03\x01\xff" 400 0',
    b'1.2.3.4 - - [17/May/2015:10:05:06 +0000] "" 408 - "-" "-"',
]
DIRT = [b'1.2.3.4 - - [17/Mai/2015:10:05:06] "GET / HTTP/1.1" 200 5', b"\x00\x00\x00", b"GET / HTTP/1.1"]


def test_access_logs_with_their_dirt(spark: SparkSession, tmp_path: Path) -> None:
    """A real web server's log could not be replayed, or its values would not be its bytes."""
    (tmp_path / "access.log").write_bytes(b"\n".join([*ACCESS, *DIRT]))
    trace = read_trace(spark, [str(tmp_path)], "access")
    found = rows(trace)
    assert [row["value"] for row in found] == ACCESS
    assert [row["source"] for row in found] == ["1.2.3.4", "2001:db8::1", *["1.2.3.4"] * 4]
    assert [(row["arrival_time"] - found[0]["arrival_time"]) // 1_000_000 for row in found] == [0, 0, 1, 2, 3, 3]
    assert trace.reasons() == {"not in the format": 3}
    mapped = read_trace(spark, [str(tmp_path)], mapping="elastic-access")
    assert rows(mapped)[1]["headers"] == [{"key": "status", "value": b"404"}]


EVENTS = """at kafka.lost(Lost.scala:1)
[2016-12-19 16:31:47,437] INFO one (kafka.a)
[2016-12-19 16:31:47,473] ERROR two (kafka.b)
java.io.IOException: broken
\tat x.Y.z(Y.java:1)

\tat x.Y.w(Y.java:2)
[2016-12-19 16:31:48,000] WARN three (kafka.a)
"""


@pytest.mark.parametrize("split", [50, 1 << 20])
def test_log4j_events_of_several_lines(spark: SparkSession, tmp_path: Path, split: int) -> None:
    """A stack trace would be torn where a large log is split, or be rows without a time."""
    (tmp_path / "kafka1.server.log.2016-12-19-16").write_text(EVENTS)
    (tmp_path / "kafka1.server.log").write_text("[2016-12-19 17:00:00,000] INFO four\n")
    trace = read_trace(spark, [str(tmp_path)], mapping="elastic-kafka-logs", split_bytes=split)
    found = rows(trace)
    first = EVENTS.index("[")
    second, third = EVENTS.index("[", first + 1), EVENTS.index("[", EVENTS.index("Y.java:2"))
    wanted = [EVENTS[first:second], EVENTS[second:third], EVENTS[third:], "[2016-12-19 17:00:00,000] INFO four"]
    assert [row["value"].decode() for row in found] == [text.rstrip("\n") for text in wanted]
    assert {(row["source"], row["topic"], bytes(row["key"])) for row in found} == {
        ("kafka1.server", "kafka-log.server", b"kafka1"),
    }  # fmt: skip
    assert found[1]["arrival_time"] - found[0]["arrival_time"] == 36_000
    assert raw_reasons(trace) == [("continuation without an event", "at kafka.lost(Lost.scala:1)\n")]


@pytest.mark.parametrize(
    ("line", "second"),
    [
        ("17/06/09 20:10:40 INFO executor.Backend: registered", 1_497_039_040),
        ("2017-06-09 20:10:40 INFO Server: started", 1_497_039_040),
        ("2017/06/09 20:10:40 [main] WARN x", 1_497_039_040),
        ("09 Jun 2017 20:10:40,250 [main] DEBUG y", 1_497_039_040),
        ("[2017-06-09T20:10:40.250] ERROR z", 1_497_039_040),
    ],
)
def test_log4j_writes_times_in_several_ways(spark: SparkSession, tmp_path: Path, line: str, second: int) -> None:
    """The logs of Spark, Hadoop and many services could not be replayed without a mapping of one's own."""
    (tmp_path / "app.log").write_text(f"{line}\n  at more\n{line}\n")
    found = rows(read_trace(spark, [str(tmp_path)], "log4j"))
    assert [row["value"].decode() for row in found] == [f"{line}\n  at more", line]
    assert {row["arrival_time"] // 1_000_000 for row in found} == {second}


def test_line_breaks_in_csv_fields(spark: SparkSession, tmp_path: Path) -> None:
    """A row with a line break in a field would be two malformed ones."""
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbft;v\n1;"a\nb;""c"""\n2.5;d\n')
    rule = mapping(
        "csv", {"column": "t", "unit": "s"}, {"source": "s", "topic": "t", "value": "{v}"},
        csv={"delimiter": ";", "multiline": True},
    )  # fmt: skip
    found = rows(read_trace(spark, [str(tmp_path)], mapping=rule))
    assert [(row["arrival_time"], row["value"]) for row in found] == [(1_000_000, b'a\nb;"c"'), (2_500_000, b"d")]


@pytest.mark.parametrize(
    ("time", "text", "wanted"),
    [
        ({"format": "iso"}, "1970-01-01 00:00:01.0000005", 1_000_001),
        ({"format": "iso", "zone": "Europe/Berlin"}, "1970-01-01T01:00:01", 1_000_000),
        ({"format": "iso", "zone": "Europe/Berlin"}, "1970-01-01T00:00:01Z", 1_000_000),
        ({"format": "yyyy/MM/dd HH:mm:ss,SSS"}, "1970/01/01 00:00:01,250", 1_250_000),
        ({"format": "dd MMM yyyy HH:mm:ss XXX"}, "01 Jan 1970 02:00:01 +02:00", 1_000_000),
        ({"unit": "s"}, "1.0000005", 1_000_001),
        ({"unit": "ms"}, "1500", 1_500_000),
        ({"unit": "100ns"}, "15", 2),
        ({"unit": "100ns"}, "133000000000000004", 13_300_000_000_000_000),
        ({"unit": "ns"}, "1499", 1),
    ],
)
def test_times_of_all_kinds(spark: SparkSession, time: dict[str, str], text: str, wanted: int) -> None:
    """A trace would be replayed at other times than it was recorded at."""
    from pyspark.sql import functions

    from kbroker.replay.traces.mapping import TimeRule
    from kbroker.replay.traces.records import arrival_time, lenient

    with lenient(spark):
        frame = spark.createDataFrame([(text,)], "t string")
        made = frame.select(arrival_time(functions.col("t"), TimeRule("t", **time)).alias("t"))  # type: ignore[arg-type]
    assert made.collect()[0]["t"] == wanted


def test_parquet_comes_back_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    """A converted trace would not be the one that was read, or a damaged one would be replayed."""
    (tmp_path / "code.csv").write_text(AZURE)
    trace = read_trace(spark, [str(tmp_path / "code.csv")], mapping="azure-llm-code")
    trace.rows.write.parquet(str(tmp_path / "trace"))
    again = read_trace(spark, [str(tmp_path / "trace")], "parquet")
    assert rows(again) == rows(trace)
    broken = trace.rows.selectExpr("* except (source)", "if(sequence % 2 = 0, null, source) as source")
    broken.write.parquet(str(tmp_path / "broken"))
    assert read_trace(spark, [str(tmp_path / "broken")], "parquet").reasons() == {"no source": 2}
    rule = mapping("parquet", {"column": "arrival_time", "unit": "us"}, {"source": "{source}", "topic": "{kind}"})
    mapped = rows(read_trace(spark, [str(tmp_path / "trace")], mapping=rule))
    assert [row["topic"] for row in mapped] == ["produce"] * 4
    with pytest.raises(TraceError, match="not Parquet"):
        read_trace(spark, [str(tmp_path / "code.csv")], "parquet")


def test_one_huge_row_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    """One broken line without an end would take down an executor."""
    good = ACCESS[0]
    (tmp_path / "access.log").write_bytes(good + b"\n" + b"x" * 3_000_000 + b"\n" + good + b"\n")
    rule = parse_mapping("mine", {"format": "access", "file": {"max_entry_bytes": 100_000}})
    trace = read_trace(spark, [str(tmp_path)], mapping=rule)
    assert len(rows(trace)) == 2
    assert trace.reasons() == {"entry too long": 1}


@pytest.mark.skipif(not SHARED.exists(), reason="the public trace sets are not on this machine")
@pytest.mark.parametrize(
    ("name", "path", "count"),
    [
        ("azure-llm-code", "azure-llm-2023/AzureLLMInferenceTrace_code.csv", 2 * 8819),
        ("azure-llm-conv", "azure-llm-2023/AzureLLMInferenceTrace_conv.csv", 2 * 19366),
        ("mooncake", "mooncake-conversation/conversation_trace.jsonl", 12031),
        ("elastic-access", "elastic-kafka-logs/apache_access_logs", 10000),
    ],
)
def test_public_traces_are_read_whole(spark: SparkSession, name: str, path: str, count: int) -> None:
    """The mappings that come with the project would not fit the traces that they are for."""
    trace = read_trace(spark, [str(SHARED / path)], mapping=name)
    assert trace.rows.count() == count
    assert trace.reasons() == {}
