"""`kbroker transactions`: open transactions of partitions, and their end, on any Kafka (KIP-664).

A transaction that no coordinator ends holds every read_committed consumer of its partition at its first record, and
compaction. Its coordinator ends one whose producer has died; one that was open when its partition was carried to
another cluster has no coordinator there.

Spoken over Kafka's protocol (DescribeProducers, WriteTxnMarkers) without TLS and SASL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from kbroker.cli.connection import Cluster as Address
from kbroker.cli.connection import bootstrap_option, timeout_option
from kbroker.cli.output import json_option, print_json, print_table, time_text

if TYPE_CHECKING:
    from kbroker.replay.client.cluster import Cluster

NO_TRANSACTION = -1


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has not ended in one partition; `last_written`: milliseconds since the epoch."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_written: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offset {self.start_offset}, producer {self.producer_id}"


@click.group("transactions")
def command() -> None:
    """Show open transactions, and abort those that no coordinator ends."""


@command.command("list")
@click.argument("topics", nargs=-1)
@bootstrap_option()
@timeout_option
@json_option
def list_transactions(topics: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """List open transactions, the oldest in its partition first.  Of all topics when none is named."""
    with _cluster(bootstrap, timeout) as cluster:
        found = _open_transactions(cluster, topics or sorted(cluster.list_topics()), None)
    if as_json:
        print_json([asdict(each) for each in found])
        return
    columns = ("TOPIC", "PARTITION", "START OFFSET", "PRODUCER ID", "EPOCH", "LAST WRITTEN")
    print_table(
        columns,
        [
            (
                each.topic,
                each.partition,
                each.start_offset,
                each.producer_id,
                each.producer_epoch,
                time_text(each.last_written),
            )
            for each in found
        ],
    )


@command.command("abort")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0), required=False)
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    help="Where the transaction begins in PARTITION, as `kbroker transactions list` shows it.",
)
@click.option("--all", "every", is_flag=True, help="All that are open; of a broker without transactions of its own.")
@bootstrap_option()
@timeout_option
def abort_transactions(
    topic: str, partition: int | None, start_offset: int | None, every: bool, bootstrap: str, timeout: float
) -> None:
    """Abort a transaction that no coordinator ends: its records stay, and read_committed consumers skip them.

    A live producer must not be behind it.
    """
    if every == (start_offset is not None):
        raise click.UsageError("give --start-offset, or --all")
    if start_offset is not None and partition is None:
        raise click.UsageError("--start-offset needs a PARTITION")
    with _cluster(bootstrap, timeout) as cluster:
        if every:
            _refuse_where_served(cluster)
        found = _open_transactions(cluster, [topic], partition)
        chosen = found if every else [each for each in found if each.start_offset == start_offset]
        if not chosen and not every:
            known = "; ".join(map(str, found)) or "none"
            raise click.ClickException(
                f"{topic}-{partition} has no open transaction that begins at offset {start_offset}; open: {known}"
            )
        for each in chosen:
            _abort(cluster, each)
            click.echo(f"aborted: {each}")
    if not chosen:
        click.echo(f"{topic}: no transaction is open")


@contextmanager
def _cluster(bootstrap: str, timeout: float) -> Iterator[Cluster]:
    from kbroker.replay.client.cluster import ClientSettings, Cluster
    from kbroker.replay.client.errors import ClientError

    Address(bootstrap, {}, timeout).check_reachable()
    settings = ClientSettings(
        client_id="kbroker-cli", connect_timeout_s=timeout, request_timeout_s=timeout, patience_s=timeout
    )
    try:
        with Cluster(bootstrap, settings) as cluster:
            yield cluster
    except ClientError as error:
        raise click.ClickException(str(error)) from None


def _refuse_where_served(cluster: Cluster) -> None:
    from kbroker.protocol.api import ApiKey
    from kbroker.replay.client.errors import UnsupportedError

    try:
        cluster.any().version_of(ApiKey.END_TXN)
    except UnsupportedError:
        return
    raise click.UsageError(
        "this cluster serves transactions, so some of those that are open may have a live producer: choose by "
        "--start-offset"
    )


def _open_transactions(cluster: Cluster, topics: Sequence[str], only: int | None) -> list[OpenTransaction]:
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message, wire

    cluster.describe(topics)
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        partitions = cluster.topic(topic).partitions
        if only is not None and only not in partitions:
            raise click.ClickException(f"{topic} has no partition {only}: it has {len(partitions)}")
        for index, info in partitions.items():
            if only is None or index == only:
                by_leader.setdefault(info.leader_id, {}).setdefault(topic, []).append(index)
    lost = by_leader.pop(-1, {})
    if lost:
        click.echo(f"kbroker: not shown, as they have no leader: partitions of {', '.join(sorted(lost))}", err=True)
    found = []
    request = wire.DescribeProducersRequest
    for leader, wanted in by_leader.items():
        rows = [request.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        answer = cluster.node(leader).send(request_message(ApiKey.DESCRIBE_PRODUCERS)(topics=rows))
        for topic_row in answer.topics:
            for row in topic_row.partitions:
                _refuse(row.error_code, f"{topic_row.name}-{row.partition_index}")
                found += [
                    OpenTransaction(
                        topic_row.name,
                        row.partition_index,
                        each.producer_id,
                        each.producer_epoch,
                        each.coordinator_epoch,
                        each.current_txn_start_offset,
                        each.last_timestamp,
                    )
                    for each in row.active_producers
                    if each.current_txn_start_offset != NO_TRANSACTION
                ]
    return sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset))


def _abort(cluster: Cluster, transaction: OpenTransaction) -> None:
    from kbroker.protocol.api import ApiKey
    from kbroker.schemas import request_message, wire

    request = wire.WriteTxnMarkersRequest
    marker = request.WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[request.WritableTxnMarkerTopic(name=transaction.topic, partition_indexes=[transaction.partition])],
        # What the leader has seen last: a marker of an older coordinator would be refused.
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    leader = cluster.leader(transaction.topic, transaction.partition)
    answer = leader.send(request_message(ApiKey.WRITE_TXN_MARKERS)(markers=[marker]))
    ((row,),) = ([row for topic in result.topics for row in topic.partitions] for result in answer.markers)
    _refuse(row.error_code, str(transaction))


def _refuse(code: int, what: str) -> None:
    from kbroker.errors import ErrorCode

    if code:
        raise click.ClickException(f"{what}: {ErrorCode(code).name}")
