"""Records as a file: JSON lines or CSV, of one partition or of all, one after the other.

A file has up to `MOST_RECORDS` records and what `MOST_BYTES` of the log hold; where that was not all, the last line
says so in JSON lines (`{"more": …}`), and the header `X-More` in both.  What a schema decodes is JSON, in JSON lines
without quotes around it; what is not text is base64.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kbroker.console.messages import look_through, range_of, readable_topic
from kbroker.console.parameters import NotThereError
from kbroker.console.partition_source import source_of
from kbroker.console.record_filter import filter_of
from kbroker.console.record_rows import MOST_SHOWN_BYTES, Wanted

if TYPE_CHECKING:
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.console.record_rows import Field, RecordRow

FORMATS = ("jsonl", "csv")
MOST_RECORDS = 10_000
MOST_BYTES = 128 << 20
"""Read for one file."""
FIELD_BYTES = 16 << 20
COLUMNS = (
    "topic", "partition", "offset", "timestamp", "key", "value", "headers", "key_is_base64", "value_is_base64",
    "key_schema", "value_schema",
)  # fmt: skip
TYPES = {"jsonl": "application/jsonl; charset=utf-8", "csv": "text/csv; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Download:
    """A file for a viewer; `more` says where to go on, empty where it is whole."""

    name: str
    content_type: str
    body: bytes
    more: str


@dataclass(frozen=True, slots=True)
class _Part:
    """The records of one partition."""

    partition: int
    rows: Sequence[RecordRow]


async def download(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/download?format=&topic=&partition=&from=&value=&count=&q=&key=&filter=&committed="""
    async with parts.reader.files:  # A file takes several times its bytes while it is made.
        found = await _download(parts, parameters)
    return lambda: found


async def _download(parts: ConsoleParts, parameters: Parameters) -> Download:
    image = readable_topic(parts, parameters)
    kind = parameters.choice("format", FORMATS)
    count = parameters.number("count", MOST_RECORDS, 1, MOST_RECORDS)
    chosen = parameters.number("partition", -1, 0, 1 << 31)
    if chosen >= len(image.partitions):
        raise NotThereError(f"topic {image.name} has no partition {chosen}")
    filtered = filter_of(parameters)
    is_committed = parameters.choice("committed", ("no", "yes")) == "yes"
    indexes = [chosen] if chosen >= 0 else range(len(image.partitions))
    found: list[_Part] = []
    left, left_bytes, more = count, MOST_SHOWN_BYTES, ""
    for index in indexes:
        source = await source_of(parts, image, index, is_committed=is_committed)
        start, stop, newest = await range_of(source, parameters, count)
        if left <= 0 or left_bytes <= 0:
            more = more or f"partition {index} from offset {start}"
            break
        wanted = Wanted(
            image.name,
            start,
            stop,
            left,
            newest,
            filtered,
            FIELD_BYTES,
            () if is_committed else None,
            left_bytes,
            parts.display,
            index,
            mask=parts.mask_of(image.name),
        )
        with parts.reader.turn():
            looked = await look_through(parts, source, wanted, MOST_BYTES)
        left -= len(looked.rows)
        left_bytes -= looked.shown_bytes
        found.append(_Part(index, list(looked.rows)))
        if looked.next_offset < stop:
            more = f"partition {index} from offset {looked.next_offset}"
            break
        if newest and looked.is_full:
            more = more or f"partition {index} before offset {looked.rows[0].offset}"
    name = f"{image.name}{'' if chosen < 0 else f'-{chosen}'}.{kind}"
    return await asyncio.get_running_loop().run_in_executor(None, _file, name, kind, image.name, found, more)


def _file(name: str, kind: str, topic: str, found: Iterable[_Part], more: str) -> Download:
    text = json_lines(topic, found, more) if kind == "jsonl" else comma_separated(topic, found)
    return Download(name, TYPES[kind], text.encode(), more)


def json_lines(topic: str, found: Iterable[_Part], more: str) -> str:
    """A line for each record."""
    lines = [
        json.dumps(
            {
                "topic": topic,
                "partition": part.partition,
                "offset": row.offset,
                "timestamp": time_of(row.timestamp),
                "key": _value(row.key),
                "value": _value(row.value),
                **({"key_schema": row.key.schema} if row.key and row.key.schema else {}),
                **({"value_schema": row.value.schema} if row.value and row.value.schema else {}),
                "headers": [{"name": each.name, "value": _value(each.value)} for each in row.headers],
                **({"control": row.control} if row.control else {}),
            },
            ensure_ascii=False,
        )
        for part in found
        for row in part.rows
    ]
    if more:
        lines.append(json.dumps({"more": more}))
    return "".join(f"{line}\n" for line in lines)


def comma_separated(topic: str, found: Iterable[_Part]) -> str:
    """RFC 4180, with a line of names; headers are JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for part in found:
        for row in part.rows:
            headers = [[each.name, _value(each.value)] for each in row.headers]
            writer.writerow(
                (
                    topic,
                    part.partition,
                    row.offset,
                    time_of(row.timestamp),
                    _cell(row.key),
                    _cell(row.value),
                    json.dumps(headers, ensure_ascii=False) if headers else "",
                    _is_base64(row.key),
                    _is_base64(row.value),
                    "" if row.key is None else row.key.schema,
                    "" if row.value is None else row.value.schema,
                )
            )
    return out.getvalue()


def _value(field: Field | None) -> object:
    if field is None:
        return None
    if field.is_decoded and not field.is_cut:
        return json.loads(field.text)
    return {"base64": field.text} if field.is_binary else field.text


def _cell(field: Field | None) -> str:
    """A text that was decoded is itself, and everything else that was decoded is JSON."""
    value = _value(field)
    return value if isinstance(value, str) else "" if field is None else field.text


def _is_base64(field: Field | None) -> str:
    return "true" if field is not None and field.is_binary else ""


def time_of(milliseconds: int) -> str | None:
    """A time in UTC; None before there was one."""
    if milliseconds < 0:
        return None
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
