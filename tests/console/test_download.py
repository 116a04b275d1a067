"""Records as files, and looks with filters.

Also of `kbroker.console.record_filter`.
"""

from __future__ import annotations

import csv
import io
import json
from contextlib import ExitStack
from http.client import HTTPConnection
from time import monotonic
from urllib.parse import urlencode

import pytest
from confluent_kafka import Producer

from kbroker.console.download import time_of
from kbroker.metrics.http_server import IDLE_SECONDS
from tests.broker_process import BrokerProcess
from tests.console.viewer import Answered, Viewer


@pytest.fixture(scope="module")
def orders(console_broker: BrokerProcess) -> str:
    """Ten orders over two of three partitions, of times 1,000 + number; the last has bytes that are no text."""
    name = console_broker.create_topic("orders", 3)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for index in range(10):
        value = b"\xff\x00" if index == 9 else json.dumps({"id": index, "note": 'a "b",\nc'}).encode()
        producer.produce(name, value, f"key {index}", partition=index % 2, timestamp=1_000 + index, headers={"n": "h"})
    assert producer.flush(30) == 0
    return name


def file_of(viewer: Viewer, **fields: object) -> Answered:
    """What is downloaded."""
    answer = viewer.get(f"/console/api/download?{urlencode(fields)}")
    assert answer.status == 200, answer.body
    return answer


def test_json_lines_have_every_record_of_all_partitions(viewer: Viewer, orders: str) -> None:
    """Who works on with the records would lack some, or the bytes of those that are no text."""
    answer = file_of(viewer, topic=orders, format="jsonl", **{"from": "oldest"})
    lines = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert [line["key"] for line in lines] == [f"key {n}" for n in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]
    assert lines[0]["timestamp"] == "1970-01-01T00:00:01.000Z" and lines[0]["headers"] == [{"name": "n", "value": "h"}]
    assert json.loads(lines[0]["value"])["id"] == 0 and lines[-1]["value"] == {"base64": "/wA="}
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''orders.jsonl"
    assert answer.headers["x-more"] == ""


def test_csv_has_a_line_of_names_and_keeps_quotes_and_line_ends(viewer: Viewer, orders: str) -> None:
    """A spreadsheet would show other values than the records have."""
    answer = file_of(viewer, topic=orders, format="csv", partition=1, **{"from": "oldest"})
    rows = list(csv.DictReader(io.StringIO(answer.body.decode(), newline="")))
    assert [row["offset"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert json.loads(rows[0]["value"])["note"] == 'a "b",\nc' and rows[0]["value_is_base64"] == ""
    assert (rows[-1]["value"], rows[-1]["value_is_base64"], rows[-1]["headers"]) == ("/wA=", "true", '[["n", "h"]]')


def test_a_file_that_is_cut_says_where_it_goes_on(viewer: Viewer, orders: str) -> None:
    """A person would take the first records for all of them."""
    answer = file_of(viewer, topic=orders, format="jsonl", partition=0, count=2, **{"from": "oldest"})
    *records, last = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert len(records) == 2 and last == {"more": "partition 0 from offset 2"}
    assert answer.headers["x-more"] == "partition 0 from offset 2"
    both = file_of(viewer, topic=orders, format="jsonl", count=5, **{"from": "oldest"})
    assert both.headers["x-more"] == "partition 1 from offset 0"


def test_filters_hold_for_looks_and_files(viewer: Viewer, orders: str) -> None:
    """A person would page through a topic to find one order."""
    asked = {"topic": orders, "partition": 0, "from": "oldest"}
    told = viewer.ask("messages", filter="value.id > 3 and value.id < 8", **asked)
    assert [json.loads(row["value"]["text"])["id"] for row in told["records"]] == [4, 6]
    assert [row["offset"] for row in viewer.ask("messages", key="key 4", **asked)["records"]] == [2]
    assert viewer.ask("messages", key="key", **asked)["records"] == []
    answer = file_of(viewer, topic=orders, format="jsonl", filter='partition = 1 and value.note matches "b"')
    assert len(answer.body.splitlines()) == 4
    assert viewer.refused("messages", filter="value.id >", **asked) == (
        400,
        "filter: a value is missing at character 11: a text in quotes, a number, true, false or null",
    )
    assert viewer.refused("download", topic=orders, filter="(")[0] == 400


def test_what_is_no_file_is_refused(viewer: Viewer, orders: str) -> None:
    """A link would lead to an error of Python."""
    assert viewer.refused("download", topic="none")[0] == 404
    assert viewer.refused("download", topic=orders, partition=3)[0] == 404
    assert viewer.refused("download", topic=orders, format="xml")[0] == 400
    assert viewer.refused("download", topic=orders, count=1_000_000)[0] == 400


def test_times_that_no_calendar_has_are_numbers() -> None:
    """One record with an odd time would spoil the file."""
    assert (time_of(-1), time_of(0), time_of(1 << 62)) == (None, "1970-01-01T00:00:00.000Z", str(1 << 62))


@pytest.fixture(scope="module")
def large(console_broker: BrokerProcess) -> str:
    """Six records of 8 MB, which take a kilobyte on disk."""
    name = console_broker.create_topic("large", 1, {"max.message.bytes": "9000000"})
    settings = {"bootstrap.servers": console_broker.bootstrap, "message.max.bytes": 9_000_000, "linger.ms": 0}
    producer = Producer({**settings, "compression.type": "zstd"})
    for index in range(6):
        producer.produce(name, b"x" * 8_000_000, str(index))
        assert producer.flush(30) == 0
    return name


def test_a_file_of_the_newest_records_is_cut_at_its_size(viewer: Viewer, large: str) -> None:
    """A file had twice the bytes that are said, or any number, without a word about it."""
    answer = file_of(viewer, topic=large, format="jsonl")
    *lines, last = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert [line["key"] for line in lines] == ["2", "3", "4", "5"]
    assert last["more"] == answer.headers["x-more"] == "partition 0 before offset 2"


def test_files_that_nobody_reads_do_not_fill_the_memory(viewer: Viewer, large: str) -> None:
    """A hundred viewers of one topic, who read nothing, took gigabytes, and the kernel ended the broker."""
    statuses, took = [], IDLE_SECONDS
    while took >= IDLE_SECONDS:  # Until the last one is there before the first one, which nobody reads, is given up.
        began = monotonic()
        with ExitStack() as held:
            statuses = []
            for _ in range(8):
                connection = HTTPConnection("127.0.0.1", viewer.port, timeout=60)
                held.callback(connection.close)
                connection.request("GET", f"/console/api/download?topic={large}&format=jsonl")
                statuses.append(connection.getresponse().status)
            took = monotonic() - began
    assert statuses[:2] == [200, 200] and statuses[-1] == 503
    while viewer.get(f"/console/api/download?topic={large}&format=jsonl").status != 200:
        pass
