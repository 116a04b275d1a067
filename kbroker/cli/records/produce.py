"""`kbroker produce`: records from standard input, one per line, to a topic of any Kafka.

Text input: a line is a value; with `--key-separator`, what stands before its first separator is the key; with
`--headers`, what stands before the first tab is `name=value,name=value`.  JSON input: a line is an object with any of
key, value, headers (a mapping), partition and timestamp; null is null.  A line ends with LF or CR LF, as in Kafka's
console producer; all other bytes are sent as they are read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from kbroker.cli import completion
from kbroker.cli.connection import Cluster, client_error, cluster_options, describe_error
from kbroker.cli.output import json_option, parse_pairs, print_json
from kbroker.cli.records.too_large import TOO_LARGE, broker_limit, client_limit, is_too_large
from kbroker.cli.records.undelivered import reason
from kbroker.nearest import did_you_mean
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

Headers = list[tuple[str, str | bytes | None]]


class Outgoing(NamedTuple):
    """A record to be sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp: int | None = None


class LineFormat(NamedTuple):
    """How a line of text becomes a record."""

    json: bool
    key_separator: bytes | None
    headers: bool
    null_marker: bytes | None
    static_headers: Headers


@click.command("produce")
@click.argument("topic", shell_complete=completion.topics)
@click.option("-K", "--key-separator", metavar="TEXT", help="Text between key and value; without it, no keys.")
@click.option("--headers", "parse_headers", is_flag=True, help="Lines start with name=value,… and a tab.")
@click.option("-H", "--header", "static", multiple=True, metavar="NAME=VALUE", help="A header for every record.")
@click.option("--null-marker", metavar="TEXT", help="A key or value of exactly this text is null.")
@click.option("--format", "input_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="[default: by the key's hash]")
@click.option("-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@json_option
@cluster_options
def command(
    cluster: Cluster,
    topic: str,
    key_separator: str | None,
    parse_headers: bool,
    static: tuple[str, ...],
    null_marker: str | None,
    input_format: str,
    partition: int | None,
    compression: str,
    acks: str,
    as_json: bool,
) -> None:
    """Write lines from standard input to TOPIC.

    A line ends with LF or CR LF.  The broker makes a topic that there is not, where auto.create.topics.enable allows.
    """
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    line_format = LineFormat(
        json=input_format == "json",
        key_separator=key_separator.encode() if key_separator else None,
        headers=parse_headers,
        null_marker=None if null_marker is None else null_marker.encode(),
        static_headers=[(name, value.encode()) for name, value in parse_pairs(static, "--header").items()],
    )
    cluster.check_reachable()
    settings = {"acks": acks, "compression.type": compression, "allow.auto.create.topics": "true", "linger.ms": "5"}
    sender = Sender(cluster, topic, partition, settings)
    for record in read_records(sys.stdin.buffer, line_format):
        sender.send(record)
    delivered = sender.finish()
    if as_json:
        print_json({"topic": topic, "delivered": delivered})


class Sender:
    """Sends records and counts what the broker took; the first refusal ends it."""

    def __init__(self, cluster: Cluster, topic: str, partition: int | None, settings: dict[str, str]) -> None:
        from confluent_kafka import Producer

        self._cluster = cluster
        self._topic = topic
        self._partition = -1 if partition is None else partition
        self._timeout = cluster.timeout
        self._delivered = 0
        self._error: KafkaError | None = None
        limit = str(max(int(cluster.timeout * 1000), 100))
        try:
            own = {**cluster.client_settings(), **settings, "message.timeout.ms": limit, **cluster.settings}
            # Another client looks: one that has seen all topics calls a new one unknown before the broker's answer.
            self._known = list(Producer(own).list_topics(timeout=cluster.timeout).topics)
            self._producer = Producer(own)
        except Exception as error:
            raise client_error(error) from None
        self._is_new = topic not in self._known

    def send(self, record: Outgoing) -> None:
        """Queue a record, and wait while the queue is full.  ClickException for a delivery that failed."""
        self._check()
        options: JsonObject = {"partition": self._partition if record.partition is None else record.partition}
        if record.timestamp is not None:
            options["timestamp"] = record.timestamp
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    on_delivery=self._on_delivery,
                    headers=record.headers,
                    **options,
                )
                break
            except BufferError:
                self._producer.poll(0.5)
                self._check()
            except Exception as error:
                raise self._refused(error, record) from None
        self._producer.poll(0)

    def finish(self) -> int:
        """Waits for what is under way; how many records were taken."""
        # Every record ends within message.timeout.ms, so that this ends too.
        while self._producer.flush(1.0):
            self._check()
        self._check()
        return self._delivered

    def _refused(self, error: Exception, record: Outgoing) -> click.ClickException:
        """What the client says to a record that it does not take."""
        refusal = client_error(error)
        if is_too_large(error):
            size = len(record.key or b"") + len(record.value or b"")
            return click.ClickException(f"{refusal.message}: {client_limit(self._cluster, size)}")
        return refusal

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._delivered += 1
            if self._is_new:
                self._is_new = False
                near = did_you_mean(self._topic, self._known)
                click.echo(f"kbroker: topic {self._topic} is new, made by the first record{near}", err=True)
        elif self._error is None:
            self._error = error

    def _check(self) -> None:
        if self._error is not None:
            # What is still queued would meet the same fate, or be taken after the failure was printed.
            self._producer.purge()
            why = self._reason(self._error)
            raise click.ClickException(
                f"{self._topic}: {describe_error(self._error)}{why and ': '}{why} "
                f"({self._delivered} records were delivered before)"
            )

    def _reason(self, error: KafkaError) -> str:
        """What the client's words do not say of a delivery that failed."""
        if error.name() == TOO_LARGE:
            return broker_limit(self._cluster, self._topic)
        return reason(self._cluster, self._topic) if error.name() == "_MSG_TIMED_OUT" else ""


def read_records(lines: BinaryIO, line_format: LineFormat) -> Iterator[Outgoing]:
    """A record for each line of the input."""
    parse = _parse_json if line_format.json else _parse_text
    for number, line in enumerate(lines, 1):
        stripped = line.removesuffix(b"\n")
        if len(stripped) < len(line):
            stripped = stripped.removesuffix(b"\r")
        if line_format.json and not stripped.strip():
            continue
        try:
            yield parse(stripped, line_format)
        except (ValueError, TypeError) as error:
            raise click.ClickException(f"line {number}: {error}") from None


def _parse_text(line: bytes, line_format: LineFormat) -> Outgoing:
    headers = list(line_format.static_headers)
    if line_format.headers:
        head, tab, line = line.partition(b"\t")
        if not tab:
            raise ValueError("no tab after the headers")
        for item in filter(None, head.split(b",")):
            name, equals, content = item.partition(b"=")
            if not equals:
                raise ValueError(f"header {item.decode(errors='replace')!r} is not name=value")
            headers.append((name.decode(), content))
    key: bytes | None = None
    value: bytes | None = line
    if line_format.key_separator is not None:
        key, found, value = line.partition(line_format.key_separator)
        if not found:
            raise ValueError(f"no {line_format.key_separator.decode(errors='replace')!r} between key and value")
    if line_format.null_marker is not None:
        key = None if key == line_format.null_marker else key
        value = None if value == line_format.null_marker else value
    return Outgoing(key, value, headers)


def _parse_json(line: bytes, line_format: LineFormat) -> Outgoing:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise TypeError("not a JSON object")
    unknown = record.keys() - {"key", "value", "headers", "partition", "timestamp", "topic", "offset"}
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}")
    headers = [(name, _encode(value)) for name, value in (record.get("headers") or {}).items()]
    return Outgoing(
        _encode(record.get("key")),
        _encode(record.get("value")),
        [*line_format.static_headers, *headers],
        record.get("partition"),
        record.get("timestamp"),
    )


def _encode(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()
