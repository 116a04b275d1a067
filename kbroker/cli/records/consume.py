"""`kbroker consume`: records of topics of any Kafka to standard output.

With `--group` the partitions are shared with the group's other members and what was written is committed; without,
every partition is read and nothing is committed.  `--format` is a template: %s value, %k key, %h headers, %t topic,
%p partition, %o offset, %T timestamp, %% a percent sign, \\n and \\t; a null key or value is written as nothing.
With a schema registry or schema files keys and values are written as JSON on one line; what cannot be decoded is
written as it came, and stderr says why.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli import completion
from kbroker.cli.connection import UNKNOWN_TOPIC, Cluster, client_error, cluster_options, describe_error
from kbroker.cli.output import json_option
from kbroker.cli.places import LOCAL, TIME, milliseconds_of
from kbroker.cli.records.schema_options import ClientRecord, Complaints, ReadMessage, schema_options
from kbroker.registry.plain import bytes_as_json

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicPartition

    from kbroker.registry.display import Display, Shown

POLL_SECONDS = 0.5
BATCH = 500
_DIRECTIVE = re.compile(r"%(.)|\\(.)", re.DOTALL)
Render = Callable[[Any], bytes]


@click.command("consume")
@click.argument("topics", nargs=-1, required=True, shell_complete=completion.topics)
@click.option("--from-beginning", is_flag=True, help="Start with the oldest record instead of the next new one.")
@click.option("-n", "--max-messages", type=click.IntRange(min=1), help="End after so many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="End when every partition was read to its end.")
@click.option(
    "--idle-timeout", type=click.FloatRange(min=0.1), metavar="SECONDS", help="End when nothing came so long."
)
@click.option("-g", "--group", help="Consume as a member of this group.", shell_complete=completion.consumer_groups)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Read only this partition.")
@click.option("-o", "--offset", type=int, help="Start at this offset; negative: so many before the end.")
@click.option("--from-time", type=TIME, metavar="TIME", help=f"Start with the first record from TIME on ({LOCAL}).")
@click.option("--key-separator", metavar="TEXT", help="Write keys too, with this text before the value.")
@click.option("-f", "--format", "template", metavar="TEMPLATE", help="What to write for each record, e.g. '%k: %s\\n'.")
@click.option("--isolation", type=click.Choice(["read_committed", "read_uncommitted"]), default="read_committed")
@json_option
@schema_options
@cluster_options
def command(
    cluster: Cluster,
    topics: tuple[str, ...],
    from_beginning: bool,
    max_messages: int | None,
    exit_at_end: bool,
    idle_timeout: float | None,
    group: str | None,
    partition: int | None,
    offset: int | None,
    from_time: datetime | None,
    key_separator: str | None,
    template: str | None,
    isolation: str,
    as_json: bool,
    display: Display | None,
) -> None:
    """Write the records of TOPICS to standard output."""
    if group is not None and any(each is not None for each in (partition, offset, from_time)):
        raise click.UsageError("--partition, --offset and --from-time do not go with --group")
    if [from_beginning, offset is not None, from_time is not None].count(True) > 1:
        raise click.UsageError("give one of --from-beginning, --offset, --from-time")
    render = decoding(choose_render(template, key_separator, as_json), display, complains=not as_json)
    cluster.check_reachable()
    settings = {
        "group.id": group or "kbroker-cli-no-group",
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "earliest" if from_beginning or offset is not None or from_time is not None else "latest",
        "isolation.level": isolation,
    }
    reader = Reader(cluster, settings, render, commits=group is not None)
    try:
        if group is not None:
            reader.subscribe(list(topics))
        else:
            reader.assign(topics, partition, from_time or _start(from_beginning, offset))
        reader.run(max_messages, exit_at_end, idle_timeout)
    finally:
        reader.close()


def _start(from_beginning: bool, offset: int | None) -> int | None:
    if offset is not None:
        return offset
    return 0 if from_beginning else None


class Reader:
    """Reads until one of the ends that the user named, or until interrupted."""

    def __init__(self, cluster: Cluster, settings: dict[str, str], render: Render, *, commits: bool) -> None:
        from confluent_kafka import Consumer

        self._cluster = cluster
        self._timeout = cluster.timeout
        self._render = render
        self._commits = commits
        self._at_end: set[tuple[str, int]] = set()
        try:
            self._consumer = Consumer({**cluster.client_settings(), **settings, **cluster.settings})
        except Exception as error:
            raise client_error(error) from None

    def subscribe(self, topics: list[str]) -> None:
        """Join the group of the topics."""
        # Partitions that come or go change what "every partition at its end" means.
        self._consumer.subscribe(
            topics,
            on_assign=lambda _consumer, _partitions: self._at_end.clear(),
            on_revoke=lambda _consumer, _partitions: self._commit(),
        )

    def assign(self, topics: tuple[str, ...], only: int | None, start: int | datetime | None) -> None:
        """Reads all partitions, or one, from `start`: an offset, negative from the end, a time, None for the end."""
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

        partitions = []
        for topic in topics:
            numbers = self._partitions(topic)
            if only is not None and only not in numbers:
                raise click.ClickException(f"{topic}: there is no partition {only}")
            for number in numbers if only is None else [only]:
                if start is None:
                    offset = OFFSET_END
                elif isinstance(start, datetime):
                    offset = self._from_time(TopicPartition(topic, number, milliseconds_of(start)))
                elif start < 0:
                    low, high = self._watermarks(TopicPartition(topic, number))
                    offset = max(low, high + start)
                else:
                    offset = start or OFFSET_BEGINNING
                partitions.append(TopicPartition(topic, number, offset))
        self._consumer.assign(partitions)

    def _partitions(self, topic: str) -> list[int]:
        try:
            metadata = self._consumer.list_topics(topic, timeout=self._timeout).topics[topic]
        except Exception as error:
            raise client_error(error) from None
        if metadata.error is not None:
            raise self._unknown(topic, metadata.error)
        return sorted(metadata.partitions)

    def _from_time(self, wanted: TopicPartition) -> int:
        """The first offset from the time that stands in the place of an offset; the end where none is that young."""
        _, high = self._watermarks(wanted)
        try:
            (found,) = self._consumer.offsets_for_times([wanted], timeout=self._timeout)
        except Exception as error:
            raise client_error(error) from None
        return found.offset if found.offset >= 0 else high

    def _watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(partition, timeout=self._timeout)
        except Exception as error:
            raise client_error(error) from None
        return low, high

    def run(self, max_messages: int | None, exit_at_end: bool, idle_timeout: float | None) -> None:
        """Print records until `max_messages` came, all partitions are at their ends, or `idle_timeout` s passed."""
        left = max_messages
        last = time.monotonic()
        while left is None or left > 0:
            try:
                messages = self._consumer.consume(BATCH if left is None else min(BATCH, left), POLL_SECONDS)
            except Exception as error:
                raise client_error(error) from None
            written = self._write(messages)
            if written:
                last = time.monotonic()
                left = None if left is None else left - written
                self._commit()
            elif idle_timeout is not None and time.monotonic() - last >= idle_timeout:
                return
            if exit_at_end and self._all_at_end():
                return

    def _write(self, messages: list[Any]) -> int:
        out, written = sys.stdout.buffer, 0
        for message in messages:
            error = message.error()
            partition = (message.topic(), message.partition())
            if error is None:
                self._at_end.discard(partition)
                out.write(self._render(message))
                written += 1
            elif error.name() == "_PARTITION_EOF":
                self._at_end.add(partition)
            elif not error.retriable() or error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
                raise self._unknown(str(message.topic()), error)
        out.flush()
        return written

    def _unknown(self, topic: str, error: KafkaError) -> click.ClickException:
        """The refusal of a topic, with the name that may have been meant."""
        text = describe_error(error)
        near = self._cluster.near_topic(topic) if text.startswith(UNKNOWN_TOPIC) else ""
        return click.ClickException(f"{topic}: {text}{near}" if topic not in text else f"{text}{near}")

    def _commit(self) -> None:
        """Commits what was written; a group that has moved on reads it again elsewhere, which is no error here."""
        from confluent_kafka import KafkaException

        if not self._commits:
            return
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            reason = error.args[0]
            if reason.name() not in ("_NO_OFFSET", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"):
                raise client_error(error) from None

    def _all_at_end(self) -> bool:
        assigned = {(tp.topic, tp.partition) for tp in self._consumer.assignment()}
        return bool(assigned) and assigned <= self._at_end

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def choose_render(template: str | None, key_separator: str | None, as_json: bool) -> Render:
    """What turns a record into the bytes that are written for it."""
    if sum((template is not None, key_separator is not None, as_json)) > 1:
        raise click.UsageError("give one of --format, --key-separator, --json")
    if as_json:
        return render_json
    if template is not None:
        return compile_template(template)
    if key_separator is not None:
        separator = key_separator.encode()
        return lambda message: (message.key() or b"") + separator + (message.value() or b"") + b"\n"
    return lambda message: (message.value() or b"") + b"\n"


def decoding(render: Render, display: Display | None, *, complains: bool) -> Render:
    """The same for records with key and value decoded, where there is something to decode by."""
    if display is None:
        return render
    complaints = Complaints()

    def decode_and_render(message: ClientRecord) -> bytes:
        read = ReadMessage(message, display)
        if complains:
            complaints.about(read)
        return render(read)

    return decode_and_render


def render_json(message: Any) -> bytes:
    """One object on one line.  Bytes that are no UTF-8 appear as {"base64": …}; what was decoded as it is, with the
    schema beside it, and what could not with the reason."""
    record = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        **_side("key", message),
        **_side("value", message),
        "headers": {name: _text(value) for name, value in message.headers() or []},
    }
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _side(side: str, message: ClientRecord) -> dict[str, object]:
    """The key or the value, and how it was decoded, where it was to be."""
    shown: Shown | None = getattr(message, f"shown_{side}", None)
    came: ClientRecord = getattr(message, "message", message)
    data = _text(came.key() if side == "key" else came.value())
    if shown is None:
        return {side: data}
    fields = {side: shown.value if shown.is_decoded else data, f"{side}_schema": shown.schema}
    return {**fields, f"{side}_problem": shown.problem} if shown.problem else fields


def _text(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return bytes_as_json(value)


def _headers(message: Any) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers() or [])


FIELDS: dict[str, Render] = {
    "s": lambda message: message.value() or b"",
    "k": lambda message: message.key() or b"",
    "h": _headers,
    "t": lambda message: str(message.topic()).encode(),
    "p": lambda message: str(message.partition()).encode(),
    "o": lambda message: str(message.offset()).encode(),
    "T": lambda message: str(message.timestamp()[1]).encode(),
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def compile_template(template: str) -> Render:
    """A template as a function.  UsageError for a directive that there is not."""
    parts: list[bytes | Render] = []
    position = 0
    for match in _DIRECTIVE.finditer(template):
        parts.append(template[position : match.start()].encode())
        position = match.end()
        field, escape = match[1], match[2]
        if field == "%":
            parts.append(b"%")
        elif field in FIELDS:
            parts.append(FIELDS[field])
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        else:
            raise click.UsageError(f"--format: {match[0]} is not one of %s %k %h %t %p %o %T %% \\n \\t \\r \\0 \\\\")
    parts.append(template[position:].encode())
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts)
