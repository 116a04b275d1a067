"""Mapping files: which part of a row is the time, the source, the topic, the key and the value.

TOML (or JSON of the same shape).  `docs/replay.md` describes it for users; in short:

    format = "csv"                      # csv, json, text, access, log4j, parquet, kafka-log, kafka
    [time]                              # column, and format (a Spark pattern or "iso") or unit; zone where it has none
    [record]                            # source, topic, key, value or size, partition, headers, kind, group, sequence
    [[extra]]                           # a further record for each row: as record, with delay_ms and where
    [csv] [json] [text] [file]          # how the rows are found in the files

Every field of a record but `size`, `delay_ms` and `where` is a template: text with Spark SQL expressions in braces.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping as Mappings
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from kbroker.replay.traces.errors import TraceError
from kbroker.types import JsonObject

FORMATS = ("csv", "json", "text", "access", "log4j", "parquet", "kafka-log", "kafka")
UNITS = {"s": 0, "ms": 3, "us": 6, "100ns": 7, "ns": 9}
"""Digits after the point that a second has in each unit of time."""

ACCESS_FIELDS = (
    r"^(?:(?P<host>[A-Za-z0-9.-]+:\d{1,5}) )?(?P<client>\S+) (?P<identity>\S+) (?P<user>.*?)"
    r" \[(?P<time>\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]"
    r' "(?P<request>.*?)" (?P<status>\d{3}|-) (?P<bytes>\d+|-)'
    r'(?: "(?P<referer>(?:[^"\\]|\\.)*)"(?: "(?P<agent>(?:[^"\\]|\\.)*)"?)?)?(?P<rest>.*)$'
)
"""Common and combined log format, of a virtual host or not, with anything that a server adds behind it.

A request may hold quotes; the last field may have lost its end."""

_LOG4J_TIME = (
    r"(?:\d{4}-\d\d-\d\d[ T]|\d{4}/\d\d/\d\d |\d\d/\d\d/\d\d |\d\d [A-Z][a-z]{2} \d{4} )\d\d:\d\d:\d\d(?:[,.]\d{1,9})?"
)
LOG4J_TIMES = "iso | yy/MM/dd HH:mm:ss | yyyy/MM/dd HH:mm:ss | dd MMM yyyy HH:mm:ss"
"""As Kafka and log4j's ISO8601 write times, Spark and Hadoop, others by hand, and log4j's DATE."""
LOG4J_OPENING = rf"^\[?{_LOG4J_TIME}[\] ]"
LOG4J_FIELDS = (
    rf"^\[?(?P<time>{_LOG4J_TIME})\]?\s+"
    r"(?:\[?(?P<level>TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b\]?\s*)?(?P<message>[\s\S]*)$"
)


@dataclass(frozen=True, slots=True)
class TimeRule:
    """Where the time of a row is.  `format` is "iso" or a Spark pattern, or several with " | " between, of which the
    first that fits counts; with `unit` the column is a number instead."""

    column: str = ""
    format: str = "iso"
    unit: str | None = None
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class RecordRule:
    """Templates of a record's fields; None where it has none."""

    source: str | None = None
    topic: str | None = None
    key: str | None = None
    value: str | None = None
    size: str | None = None
    partition: str | None = None
    headers: object = None
    kind: str | None = None
    group: str | None = None
    sequence: str | None = None
    delay_ms: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class CsvRule:
    """`columns` names them where the file has no header."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    header: bool = True
    multiline: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonRule:
    """Types of columns that a look at the first lines does not tell, in Spark's words (`"array<bigint>"`)."""

    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextRule:
    """`opening`: what a line looks like that begins an event (None: each does); `fields`: named groups are columns."""

    opening: str | None = None
    fields: str = r"^(?P<message>[\s\S]*)$"


@dataclass(frozen=True, slots=True)
class FileRule:
    """`pattern`: its named groups, found in a file's path, are columns; `encoding` of text files is UTF-8."""

    pattern: str | None = None
    max_entry_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Mapping:
    """All that turns rows of one kind of file into a trace."""

    name: str
    format: str
    time: TimeRule
    record: RecordRule
    extra: tuple[RecordRule, ...] = ()
    csv: CsvRule = CsvRule()
    json: JsonRule = JsonRule()
    text: TextRule = TextRule()
    file: FileRule = FileRule()

    @property
    def records(self) -> tuple[RecordRule, ...]:
        """The records that each row gives; what an extra one does not say is as in the first."""
        return (self.record, *(_inherit(self.record, extra) for extra in self.extra))


_TOPIC_RECORD = RecordRule(
    source="{topic}-{partition}",
    topic="{topic}",
    partition="{partition}",
    key="{key}",
    value="{value}",
    headers="{headers}",
    sequence="{offset}",
)
_TOPIC_TIME = TimeRule(column="timestamp")

PRESETS: dict[str, Mapping] = {
    "access": Mapping(
        "access",
        "access",
        TimeRule(column="time", format="dd/MMM/yyyy:HH:mm:ss Z"),
        RecordRule(source="{client}", topic="access", key="{client}", value="{line}"),
        text=TextRule(fields=ACCESS_FIELDS),
    ),
    "log4j": Mapping(
        "log4j",
        "log4j",
        TimeRule(column="time", format=LOG4J_TIMES),
        RecordRule(source="{file_name}", topic="log", key=None, value="{line}"),
        text=TextRule(opening=LOG4J_OPENING, fields=LOG4J_FIELDS),
    ),
    "kafka-log": Mapping("kafka-log", "kafka-log", _TOPIC_TIME, _TOPIC_RECORD),
    "kafka": Mapping("kafka", "kafka", _TOPIC_TIME, _TOPIC_RECORD),
}
"""Mappings of the formats that need none."""

_TABLES: dict[str, object] = {
    "time": TimeRule,
    "record": RecordRule,
    "extra": RecordRule,
    "csv": CsvRule,
    "json": JsonRule,
    "text": TextRule,
    "file": FileRule,
}
_REFLECTION = re.compile(r"\b(reflect|try_reflect|java_method)\b", re.IGNORECASE)


def bundled() -> list[str]:
    """Names of the mappings that come with the project."""
    folder = resources.files("kbroker.replay") / "mappings"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def find_mapping(name: str | None, trace_format: str | None) -> Mapping:
    """The mapping of a file, of a bundled name, or of a format that needs none.  Raises TraceError."""
    if name is None:
        if trace_format in PRESETS:
            return PRESETS[trace_format]
        if trace_format is None:
            raise TraceError(
                f"say what the trace is: a format ({', '.join(FORMATS)}), a mapping (a file, or one of "
                f"{', '.join(bundled())}) or both"
            )
        raise TraceError(f"format {trace_format} needs a mapping, a file or one of: {', '.join(bundled())}")
    mapping = parse_mapping(name, _load(name), trace_format)
    if trace_format is not None and trace_format != mapping.format:
        raise TraceError(f"mapping {name} is for format {mapping.format}, not {trace_format}")
    return mapping


def parse_mapping(name: str, tables: Mappings[str, object], trace_format: str | None = None) -> Mapping:
    """A mapping out of what a file holds.  Raises TraceError on an unknown word or a missing field."""
    chosen = tables.get("format", trace_format)
    if chosen not in FORMATS:
        raise TraceError(f"mapping {name}: format is {chosen!r}, must be one of {', '.join(FORMATS)}")
    unknown = sorted(set(tables) - set(_TABLES) - {"format"})
    if unknown:
        raise TraceError(f"mapping {name}: unknown table {unknown[0]!r}; there are {', '.join(_TABLES)}")
    preset = PRESETS.get(chosen)
    parts: JsonObject = {}
    for table, rule in _TABLES.items():
        given = tables.get(table, [] if table == "extra" else {})
        if table == "extra":
            parts[table] = tuple(_rule(name, table, RecordRule, None, each) for each in _list(name, given))
        else:
            parts[table] = _rule(name, table, rule, getattr(preset, table, None), given)
    mapping = Mapping(name, chosen, **parts)
    _check(mapping)
    return mapping


def _load(name: str) -> Mappings[str, object]:
    path = Path(name)
    if not path.is_file() and "/" not in name:
        packaged = resources.files("kbroker.replay") / "mappings" / f"{name.removesuffix('.toml')}.toml"
        if packaged.is_file():
            return tomllib.loads(packaged.read_text())
        raise TraceError(
            f"mapping {name}: there is no such file, and none of that name comes with kbroker, which are: "
            f"{', '.join(bundled())}"
        )
    try:
        text = path.read_text(encoding="utf-8")
        loaded = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise TraceError(f"mapping {name} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise TraceError(f"mapping {name} is not {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from None
    if not isinstance(loaded, dict):
        raise TraceError(f"mapping {name} must be an object")
    return loaded


def _list(name: str, given: object) -> list[object]:
    if not isinstance(given, list):
        raise TraceError(f"mapping {name}: extra is a list: write [[extra]]")
    return given


def _rule(name: str, table: str, rule: Any, preset: Any, given: Any) -> Any:
    if not isinstance(given, dict):
        raise TraceError(f"mapping {name}: {table} must be a table")
    known = {each.name: each for each in fields(rule)}
    values: dict[str, object] = {}
    for key, value in given.items():
        if key not in known:
            raise TraceError(f"mapping {name}: {table} has no {key!r}; there are {', '.join(known)}")
        values[key] = _typed(f"mapping {name}: {table}.{key}", key, value, str(known[key].type))
    return replace(preset, **values) if preset is not None else rule(**values)


def _typed(where: str, key: str, value: object, annotation: str) -> object:
    if key == "headers":
        if isinstance(value, str) or (isinstance(value, dict) and all(isinstance(v, str) for v in value.values())):
            return value
        raise TraceError(f"{where} must be a table of templates")
    if annotation.startswith("tuple"):
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise TraceError(f"{where} must be a list of texts")
    wanted = {"bool": bool, "int": int}.get(annotation, dict if annotation.startswith("dict") else str)
    if wanted is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise TraceError(f"{where} must be {'a text' if wanted is str else wanted.__name__}, not {value!r}")
    if wanted is str and _REFLECTION.search(str(value)):
        raise TraceError(f"{where}: expressions may not call into Java")
    return value


def _check(mapping: Mapping) -> None:
    name = mapping.name
    if mapping.format != "parquet" or mapping.time.column:
        if not mapping.time.column:
            raise TraceError(f"mapping {name}: time.column is missing: the column with the time of a row")
        if mapping.time.unit is not None and mapping.time.unit not in UNITS:
            raise TraceError(f"mapping {name}: time.unit is {mapping.time.unit!r}, must be one of {', '.join(UNITS)}")
    for record in mapping.records:
        for wanted in ("source", "topic"):
            if getattr(record, wanted) is None:
                raise TraceError(f"mapping {name}: record.{wanted} is missing")
        if record.value is not None and record.size is not None:
            raise TraceError(f"mapping {name}: a record has a value or a size, not both")
    for what, pattern in (("text.fields", mapping.text.fields), ("text.opening", mapping.text.opening),
                          ("file.pattern", mapping.file.pattern)):  # fmt: skip
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise TraceError(f"mapping {name}: {what} is not a regular expression: {error}") from None


def _inherit(record: RecordRule, extra: RecordRule) -> RecordRule:
    given = {each.name: getattr(extra, each.name) for each in fields(extra)}
    given = {key: value for key, value in given.items() if value is not None}
    if "value" in given:
        given.setdefault("size", None)
    if "size" in given:
        given.setdefault("value", None)
    return replace(record, **{"delay_ms": None, "where": None, "sequence": None, **given})
