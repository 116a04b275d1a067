"""`kbroker cluster`: shows the brokers of a cluster and its problems, and moves leaders and replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kbroker.administration.admin import Place
from kbroker.administration.replicas import elect_leaders
from kbroker.administration.replicas import reassign as reassign_replicas
from kbroker.cli.cluster.quorum import fenced_brokers, print_quorum, quorum_of
from kbroker.cli.cluster.quorum_commands import command as quorum_command
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, print_errors, print_json, print_lines, print_table, size_text
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin
    from kbroker.types import JsonObject

SHORT_BYTES = 64 << 20
"""A log directory with less is named as what may hold a replica back."""

Assignment = dict[Place, list[int]]


class Move(NamedTuple):
    """Replicas of a partition on the move."""

    partition: str
    replicas: list[int]
    adding: list[int]
    removing: list[int]


@click.group("cluster")
def command() -> None:
    """Show a cluster, elect leaders, reassign replicas, drain a broker."""


command.add_command(quorum_command)

# What there is


def _metadata(admin: ClusterAdmin) -> wire.MetadataResponse:
    return admin.send(wire.MetadataResponse, wire.MetadataRequest(topics=None, allow_auto_topic_creation=False))


class Held(NamedTuple):
    """A replica as its broker reports it.  `lag`: committed records that it lacks.  `free_bytes`: of its log directory.
    Both are -1 where they are not known."""

    size: int
    lag: int
    free_bytes: int


def _held(admin: ClusterAdmin, nodes: Iterable[int]) -> dict[tuple[int, str, int], Held]:
    """Each replica, from the brokers that answer."""
    from kbroker.client.errors import ClientError

    found = {}
    for node_id in nodes:
        try:
            answer = admin.send(wire.DescribeLogDirsResponse, wire.DescribeLogDirsRequest(topics=None), node_id)
        except (ClientError, KafkaError):
            continue
        for directory in answer.results:
            for topic in directory.topics:
                for row in topic.partitions:
                    if not row.is_future_key:
                        held = Held(row.partition_size, row.offset_lag, directory.usable_bytes)
                        found[node_id, topic.name, row.partition_index] = held
    return found


def _status(admin: ClusterAdmin) -> JsonObject:
    metadata = _metadata(admin)
    alive = sorted(broker.node_id for broker in metadata.brokers)
    held = _held(admin, alive)
    adding = {move.partition: move.adding for move in _known_moves(admin)}
    leaders = dict.fromkeys(alive, 0)
    replicas = dict.fromkeys(alive, 0)
    sizes = dict.fromkeys(alive, 0)
    for (node_id, _, _), replica in held.items():
        sizes[node_id] += replica.size
    count, offline, under, behind = 0, [], [], []
    for topic in sorted(metadata.topics, key=lambda each: str(each.name)):
        for row in sorted(topic.partitions, key=lambda each: each.partition_index):
            count += 1
            name = f"{topic.name}-{row.partition_index}"
            if row.leader_id in leaders:
                leaders[row.leader_id] += 1
            else:
                offline.append({"partition": name, "isr": list(row.isr_nodes), "replicas": list(row.replica_nodes)})
            for node_id in row.replica_nodes:
                if node_id in replicas:
                    replicas[node_id] += 1
            missing = [node_id for node_id in row.replica_nodes if node_id not in row.isr_nodes]
            if any(node_id not in adding.get(name, ()) for node_id in missing):
                under.append(name)
            behind += [
                {
                    "partition": name,
                    "broker": node_id,
                    "leader": row.leader_id,
                    "lag": None if replica is None or replica.lag < 0 else replica.lag,
                    "reason": reason(node_id, row, alive, replica, is_new=node_id in adding.get(name, ())),
                }
                for node_id in missing
                for replica in (held.get((node_id, str(topic.name), row.partition_index)),)
            ]
    return {
        "controller": metadata.controller_id,
        "brokers": [
            {
                "id": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "leaders": leaders[broker.node_id],
                "replicas": replicas[broker.node_id],
                "size": sizes[broker.node_id],
            }
            for broker in sorted(metadata.brokers, key=lambda each: each.node_id)
        ],
        "fenced": fenced_brokers(admin),
        "quorum": quorum_of(admin),
        "partitions": count,
        "offline": offline,
        "under_replicated": under,
        "out_of_isr": behind,
    }


def reason(node_id: int, row: Any, alive: Sequence[int], replica: Held | None, *, is_new: bool) -> str:
    """Why a replica is not in the ISR, as far as a client can see."""
    if node_id not in alive:
        return "its broker is not registered"
    if node_id in row.offline_replicas:
        return "its log directory has failed"
    if row.leader_id not in alive:
        return "there is no leader to copy from"
    found = "a reassignment adds it" if is_new else "it is behind its leader"
    if replica is not None and 0 <= replica.free_bytes < SHORT_BYTES:
        found += f", and its log directory has {size_text(replica.free_bytes)} left"
    return found


@command.command("status")
@json_option
@cluster_options
def status(cluster: Cluster, as_json: bool) -> int:
    """Brokers, the controller, and partitions that are offline or under-replicated; exit status 1 if any is."""
    with cluster.admin() as admin:
        found = _status(admin)
    if as_json:
        print_json(found)
    else:
        _print_status(found)
    return int(bool(found["offline"] or found["under_replicated"]))


def _print_status(found: JsonObject) -> None:
    print_table(
        ("BROKER", "ADDRESS", "RACK", "LEADERS", "REPLICAS", "SIZE", ""),
        [
            (
                each["id"],
                each["address"],
                each["rack"],
                each["leaders"],
                each["replicas"],
                size_text(each["size"]),
                "controller" if each["id"] == found["controller"] and found["quorum"] is None else "",
            )
            for each in found["brokers"]
        ],
    )
    for node_id in found["fenced"]:
        click.echo(f"broker {node_id} is registered and fenced: it is away, or has not come up yet")
    if found["quorum"] is not None:
        print_quorum(found["quorum"])
    offline, under = len(found["offline"]), len(found["under_replicated"])
    click.echo(f"\n{found['partitions']} partitions, {under} under-replicated, {offline} offline")
    if found["quorum"] is None and found["controller"] not in {each["id"] for each in found["brokers"]}:
        click.echo("no controller is known")
    for each in found["offline"]:
        click.echo(f"offline: {each['partition']}, its last in-sync replicas are on {_ids(each['isr'])}")
    if found["out_of_isr"]:
        click.echo("")
        print_table(
            ("OUT OF THE ISR", "BROKER", "LEADER", "LAG", "BECAUSE"),
            [
                (each["partition"], each["broker"], each["leader"], each["lag"], each["reason"])
                for each in found["out_of_isr"]
            ],
        )


def _ids(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"


# Elections


def _named(names: Sequence[str]) -> list[Place] | None:
    """TOPIC-PARTITION names; None for none."""
    found = []
    for name in names:
        topic, dash, index = name.rpartition("-")
        if not dash or not topic or not index.isdigit():
            raise click.UsageError(f"{name}: must be TOPIC-PARTITION, such as orders-0")
        found.append((topic, int(index)))
    return found or None


@command.command("elect")
@click.argument("names", nargs=-1, metavar="[TOPIC-PARTITION...]")
@click.option("--unclean", is_flag=True, help="Also a replica that may lack acknowledged records, which are then lost.")
@cluster_options
@json_option
def elect(cluster: Cluster, names: tuple[str, ...], unclean: bool, as_json: bool) -> int:
    """Make the preferred replica of partitions the leader, of all without names."""
    wanted = _named(names)
    if unclean and wanted is None:
        raise click.UsageError("--unclean loses records: name the partitions")
    errors, results = [], []
    with cluster.admin() as admin:
        for (topic, index), row in admin.do(elect_leaders(admin, wanted, unclean=unclean)):
            if not row.error_code:
                results.append((f"{topic}-{index}", "elected"))
            elif row.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                results.append((f"{topic}-{index}", "has that leader"))
            else:
                errors.append(_refusal(f"{topic}-{index}", row.error_code, row.error_message))
    if as_json:
        print_json([{"partition": name, "result": result} for name, result in results])
        return print_errors(errors)
    for name, result in results:
        click.echo(f"{name}: {result}")
    if not errors and all(result != "elected" for _, result in results):
        click.echo("nothing to elect")
    return print_errors(errors)


def _refusal(partition: str, code: int, message: str | None) -> str:
    return f"{partition}: {error_name(code)}: {message or ''}".rstrip(": ")


# Reassignments


@command.command("reassign")
@click.argument("names", nargs=-1, metavar="[TOPIC-PARTITION...]")
@click.option(
    "--replicas", metavar="ID,ID,…", help="The brokers that are to have the replicas, the preferred leader first."
)
@click.option("--cancel", is_flag=True, help="Call the reassignment off.")
@cluster_options
@json_option
def reassign(cluster: Cluster, names: tuple[str, ...], replicas: str | None, cancel: bool, as_json: bool) -> int:
    """Move replicas of partitions to other brokers; without names, show what is on the move."""
    wanted = _named(names)
    if wanted is None:
        if replicas or cancel:
            raise click.UsageError("name the partitions")
        with cluster.admin() as admin:
            moves = _moves(admin)
        if as_json:
            print_json([move._asdict() for move in moves])
        else:
            _print_moves(moves)
        return 0
    if bool(replicas) == cancel:
        raise click.UsageError("give either --replicas or --cancel")
    target = None if replicas is None else _parse_ids(replicas)
    with cluster.admin() as admin:
        errors = _alter(admin, dict.fromkeys(wanted, target))
    taken = [f"{topic}-{index}" for topic, index in wanted]
    taken = [name for name in taken if not any(each.startswith(f"{name}:") for each in errors)]
    result = "called off" if cancel else "on its way"
    rows = [{"partition": name, "replicas": target, "result": result} for name in taken]
    where = "" if target is None else f" to {_ids(target)}"
    print_lines(rows, lambda row: f"{row['partition']}: {row['result']}{where}", as_json)
    return print_errors(errors)


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replicas {text}: must be ids of brokers, such as 1,2,3") from None


def _alter(admin: ClusterAdmin, targets: Mapping[Place, Sequence[int] | None]) -> list[str]:
    return [
        _refusal(f"{topic}-{index}", row.error_code, row.error_message)
        for (topic, index), row in admin.do(reassign_replicas(admin, targets))
    ]


def _moves(admin: ClusterAdmin) -> list[Move]:
    request = wire.ListPartitionReassignmentsRequest(topics=None)
    answer = admin.do(admin.ask_controller(wire.ListPartitionReassignmentsResponse, request))
    refuse(answer.error_code, answer.error_message)
    return [
        Move(
            f"{topic.name}-{row.partition_index}",
            list(row.replicas),
            list(row.adding_replicas),
            list(row.removing_replicas),
        )
        for topic in answer.topics
        for row in topic.partitions
    ]


def _known_moves(admin: ClusterAdmin) -> list[Move]:
    """The replicas on the move; an empty list where the controller does not say."""
    from kbroker.client.errors import ClientError

    try:
        return _moves(admin)
    except (ClientError, KafkaError, click.ClickException):
        return []


def _print_moves(moves: Sequence[Move]) -> None:
    if not moves:
        click.echo("no replicas are on the move")
        return
    print_table(
        ("PARTITION", "REPLICAS", "ADDING", "REMOVING"),
        [(name, _ids(replicas), _ids(adding), _ids(removing)) for name, replicas, adding, removing in moves],
    )


def drained(assignment: Assignment, broker: int, others: Sequence[int], racks: Mapping[int, str | None]) -> Assignment:
    """Where the replicas of a broker go: to the ones of `others` with the fewest, in its rack where that is possible.

    A partition with replicas on all others already gets one replica fewer.  The result has only partitions that change.
    """
    loads = {node_id: sum(node_id in replicas for replicas in assignment.values()) for node_id in others}
    moved: Assignment = {}
    for name in sorted(assignment):
        replicas = assignment[name]
        if broker not in replicas:
            continue
        free = [node_id for node_id in others if node_id not in replicas]
        used = {racks.get(node_id) for node_id in replicas if node_id != broker}
        free.sort(key=lambda node_id: (racks.get(node_id) in used, loads[node_id], node_id))
        if free:
            loads[free[0]] += 1
            moved[name] = [free[0] if node_id == broker else node_id for node_id in replicas]
        else:
            moved[name] = [node_id for node_id in replicas if node_id != broker]
    return moved


@command.command("drain")
@click.argument("broker", type=int)
@click.option("--dry-run", is_flag=True, help="Show where the replicas would go, and move nothing.")
@cluster_options
@json_option
def drain(cluster: Cluster, broker: int, dry_run: bool, as_json: bool) -> int:
    """Move all replicas from a broker to the others, before it is taken out of the cluster."""
    with cluster.admin() as admin:
        metadata = _metadata(admin)
        racks = {each.node_id: each.rack for each in metadata.brokers}
        moves = {move.partition: move for move in _moves(admin)}
        assignment = {
            (str(topic.name), row.partition_index): _kept(
                f"{topic.name}-{row.partition_index}", row.replica_nodes, moves
            )
            for topic in metadata.topics
            for row in topic.partitions
        }
        leaving = sum(broker in move.removing for move in moves.values())
        target = drained(assignment, broker, sorted(set(racks) - {broker}), racks)
        alone = [f"{topic}-{index}" for (topic, index), replicas in target.items() if not replicas]
        if alone:
            raise click.ClickException(f"no other broker can take {', '.join(alone[:5])}")
        plan = [(f"{topic}-{index}", assignment[topic, index], ids) for (topic, index), ids in target.items()]
        if not as_json:
            _print_plan(broker, plan, leaving, is_registered=broker in racks)
        errors = [] if dry_run or not target else _alter(admin, target)
    moving = 0 if dry_run else len(target) - len(errors)
    if as_json:
        rows = [{"partition": name, "replicas": now, "target": then} for name, now, then in plan]
        print_json({"broker": broker, "dry_run": dry_run, "moving": moving, "partitions": rows})
    elif target and not dry_run:
        click.echo(f"\n{moving} partitions are on the move; see `kbroker cluster reassign`")
    return print_errors(errors)


def _kept(partition: str, replicas: Sequence[int], moves: Mapping[str, Move]) -> list[int]:
    """Where the replicas of a partition will be, once those on the move are there."""
    move = moves.get(partition)
    return [node_id for node_id in replicas if move is None or node_id not in move.removing]


def _print_plan(
    broker: int, plan: Sequence[tuple[str, list[int], list[int]]], leaving: int, *, is_registered: bool
) -> None:
    """`leaving`: partitions that an earlier reassignment takes away."""
    if leaving:
        click.echo(f"{leaving} partitions are on their way from broker {broker}; see `kbroker cluster reassign`")
    elif not plan:
        click.echo(f"broker {broker} has no replicas{'' if is_registered else ', and is not registered'}")
    if not plan:
        return
    rows = [(name, _ids(now), _ids(then)) for name, now, then in plan]
    print_table(("PARTITION", "REPLICAS", "WILL BE"), rows)
    if fewer := sum(len(then) < len(now) for _, now, then in plan):
        click.echo(f"\n{fewer} partitions will have fewer replicas than now: they are on all other brokers already")
