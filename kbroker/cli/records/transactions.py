"""`kbroker transactions`: transactional ids, open transactions of partitions, and their end, on any Kafka (KIP-664).

An open transaction stops read_committed consumers and compaction of its partition at its first record.  If the producer
has died, the coordinator aborts the transaction.  A transaction that no coordinator knows is hanging: it was open when
its partition was copied to another cluster, or a batch was appended after the marker.

It asks by Kafka's protocol (ListTransactions, DescribeTransactions, DescribeProducers, WriteTxnMarkers).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from kbroker.administration.admin import TRANSACTION
from kbroker.cli import completion
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, print_json, print_rows, print_table, time_text
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, KafkaError
from kbroker.nearest import unknown_hint
from kbroker.schemas import wire
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin

NO_TRANSACTION = -1


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in one partition; `last_written`: milliseconds since the epoch.

    `transactional_id`: the id under which its coordinator knows it; None: it hangs."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_written: int
    transactional_id: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offset {self.start_offset}, producer {self.producer_id}"


@click.group("transactions")
def command() -> None:
    """Show open transactions, and abort those that no coordinator ends."""


@command.command("list")
@click.option("--state", "states", multiple=True, help="Only ids in this state, such as Ongoing; may be repeated.")
@click.option("--pattern", help="Only ids that this regular expression matches as a whole.")
@cluster_options
@json_option
def list_transactions(cluster: Cluster, states: tuple[str, ...], pattern: str | None, as_json: bool) -> None:
    """List transactional ids, with the producer behind each and the state of its transaction."""
    with cluster.admin() as admin:
        rows = sorted(_listed(admin, states, pattern), key=lambda row: row.transactional_id)
    headers = ("TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "STATE")
    print_rows([asdict(row) for row in rows], headers, as_json)


@command.command("describe")
@click.argument("transactional_ids", nargs=-1, required=True)
@cluster_options
@json_option
def describe_transactions(cluster: Cluster, transactional_ids: tuple[str, ...], as_json: bool) -> None:
    """Show the transactions of transactional ids: since when they are open, and in which partitions."""
    with cluster.admin() as admin:
        rows = [_described(admin, transactional_id) for transactional_id in transactional_ids]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        print_table(("", ""), [(name.replace("_", " "), _text(name, value)) for name, value in row.items()])


@command.command("open")
@click.argument("topics", nargs=-1, shell_complete=completion.topics)
@cluster_options
@json_option
def list_open(cluster: Cluster, topics: tuple[str, ...], as_json: bool) -> None:
    """List transactions that are open in partitions, the oldest of each first.  Of all topics when none is named."""
    with cluster.admin() as admin:
        found = _open_transactions(admin, topics or sorted(admin.topics()), None)
    columns = ("TOPIC", "PARTITION", "START OFFSET", "TRANSACTIONAL ID", "PRODUCER ID", "EPOCH", "LAST WRITTEN")
    print_rows([asdict(each) for each in found], columns, as_json, _open_cells)


def _open_cells(row: JsonObject) -> Iterable[object]:
    whose, written = row["transactional_id"] or "(hanging)", time_text(row["last_written"])
    place = itemgetter("topic", "partition", "start_offset")(row)
    return *place, whose, row["producer_id"], row["producer_epoch"], written


@command.command("abort-hanging")
@click.argument("topic", shell_complete=completion.topics)
@click.argument("partition", type=click.IntRange(min=0), required=False)
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    help="Where the transaction begins in PARTITION, as `kbroker transactions open` shows it.",
)
@click.option("--all", "every", is_flag=True, help="All that no coordinator knows.")
@cluster_options
@json_option
def abort_hanging(
    cluster: Cluster, topic: str, partition: int | None, start_offset: int | None, every: bool, as_json: bool
) -> None:
    """Abort a transaction that no coordinator ends: its records stay, and read_committed consumers skip them.

    One that a coordinator knows is left to it: end its producer, or wait for its timeout.
    """
    if every == (start_offset is not None):
        raise click.UsageError("give --start-offset, or --all")
    if start_offset is not None and partition is None:
        raise click.UsageError("--start-offset needs a PARTITION")
    with cluster.admin() as admin:
        found = _open_transactions(admin, [topic], partition)
        if every:
            chosen = [each for each in found if each.transactional_id is None]
        else:
            chosen = [each for each in found if each.start_offset == start_offset]
        if not chosen and not every:
            known = "; ".join(map(str, found)) or "none"
            raise click.ClickException(
                f"{topic}-{partition} has no open transaction that begins at offset {start_offset}; open: {known}"
            )
        for each in chosen:
            if each.transactional_id is not None:
                raise click.ClickException(
                    f"{each} is of transactional id {each.transactional_id}: its coordinator ends it"
                )
            _abort(admin, each)
            if not as_json:
                click.echo(f"aborted: {each}")
    if as_json:
        print_json([{**asdict(each), "result": "aborted"} for each in chosen])
    elif not chosen:
        click.echo(f"{topic}: no transaction hangs")


@dataclass(frozen=True, slots=True)
class Listed:
    """A transactional id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


def _listed(admin: ClusterAdmin, states: Sequence[str], pattern: str | None) -> list[Listed]:
    """Transactional ids of all brokers; none where the cluster does not serve transactions."""
    request = wire.ListTransactionsRequest(state_filters=list(states), transactional_id_pattern=pattern)
    found: list[Listed] = []
    for node_id in admin.cluster.nodes():
        try:
            answer = admin.send(wire.ListTransactionsResponse, request, node_id)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            continue
        _refuse(answer.error_code, f"broker {node_id}")
        if answer.unknown_state_filters:
            raise click.UsageError(f"no state of a transaction: {', '.join(answer.unknown_state_filters)}")
        found += [
            Listed(row.transactional_id, node_id, row.producer_id, row.transaction_state)
            for row in answer.transaction_states
        ]
    return found


def _described(admin: ClusterAdmin, transactional_id: str) -> dict[str, object]:
    coordinator = admin.do(admin.coordinator_of(transactional_id, TRANSACTION))
    request = wire.DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = admin.send(wire.DescribeTransactionsResponse, request, coordinator).transaction_states
    if state.error_code:
        hint = unknown_hint([transactional_id], (row.transactional_id for row in _listed(admin, (), None)))
        _refuse(state.error_code, transactional_id, hint)
    return {
        "transactional_id": transactional_id,
        "coordinator": coordinator,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "timeout_ms": state.transaction_timeout_ms,
        "started": state.transaction_start_time_ms,
        "partitions": [f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions],
    }


def _text(name: str, value: Any) -> str:
    if name == "started":
        return "never" if value < 0 else time_text(value) or ""
    return ", ".join(value) if isinstance(value, list) else str(value)


def _open_transactions(admin: ClusterAdmin, topics: Sequence[str], only: int | None) -> list[OpenTransaction]:
    known = admin.cluster.describe(topics)
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        partitions = known[topic].partitions
        if only is not None and only not in partitions:
            raise click.ClickException(f"{topic} has no partition {only}: it has {len(partitions)}")
        for index, info in partitions.items():
            if only is None or index == only:
                by_leader.setdefault(info.leader_id, {}).setdefault(topic, []).append(index)
    lost = by_leader.pop(-1, {})
    if lost:
        click.echo(f"kbroker: not shown, as they have no leader: partitions of {', '.join(sorted(lost))}", err=True)
    found = []
    # Complete transactions have ended: if their producer has an open one, its batches came after the marker.
    owners = {
        each.producer_id: each.transactional_id
        for each in _listed(admin, (), None)
        if each.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
    }
    request = wire.DescribeProducersRequest
    for leader, wanted in by_leader.items():
        rows = [request.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        answer = admin.send(wire.DescribeProducersResponse, request(topics=rows), leader)
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
                        owners.get(each.producer_id),
                    )
                    for each in row.active_producers
                    if each.current_txn_start_offset != NO_TRANSACTION
                ]
    return sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset))


def _abort(admin: ClusterAdmin, transaction: OpenTransaction) -> None:
    request = wire.WriteTxnMarkersRequest
    marker = request.WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[request.WritableTxnMarkerTopic(name=transaction.topic, partition_indexes=[transaction.partition])],
        # The epoch of the last marker that the leader has seen: it would refuse a marker with a lower one.
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    leader = admin.leader_of(transaction.topic, transaction.partition)
    answer = admin.send(wire.WriteTxnMarkersResponse, request(markers=[marker]), leader)
    ((row,),) = ([row for topic in result.topics for row in topic.partitions] for result in answer.markers)
    _refuse(row.error_code, str(transaction))


def _refuse(code: int, what: str, hint: str = "") -> None:
    if code:
        raise click.ClickException(f"{what}: {error_name(code)}{hint}")
