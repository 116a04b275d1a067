"""`kbroker groups … --zookeeper`: groups of Kafka 0.8's consumers, which keep offsets in ZooKeeper, and their move to
brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from kbroker.administration.admin import Place
from kbroker.administration.groups import committed_offsets
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.groups.group_offsets import commit
from kbroker.cli.output import json_option, print_errors, print_json, print_rows, print_table
from kbroker.types import LATEST, JsonObject

if TYPE_CHECKING:
    from kbroker.cluster.zookeeper.consumer_groups import ConsumerGroupZnodes, OldGroup

_Answer = TypeVar("_Answer")

SERVERS = "HOST:PORT[,…][/PATH]"
FILE_HELP = "A server.properties whose zookeeper.ssl.* and kbroker.zookeeper.sasl.* settings are used."


def zookeeper_config_option(function: Callable[..., object]) -> Callable[..., object]:
    """`--zookeeper-config`, for ZooKeeper behind TLS or SASL."""
    file = click.Path(exists=True, dir_okay=False)
    return click.option("--zookeeper-config", type=file, metavar="FILE", help=FILE_HELP)(function)


class Servers(NamedTuple):
    """Where ZooKeeper is, and how it is reached."""

    connect: str
    config_file: str | None
    timeout: float

    def ask(self, call: Callable[[ConsumerGroupZnodes], Awaitable[_Answer]]) -> _Answer:
        """What `call` finds in one session.  ClickException."""
        from kbroker.cluster.zookeeper.consumer_groups import ConsumerGroupZnodes
        from kbroker.cluster.zookeeper.kazoo_session import KazooSession
        from kbroker.cluster.zookeeper.settings import ZooKeeperSettings, ZooKeeperSettingsError
        from kbroker.config import BrokerConfig, ConfigError
        from kbroker.errors import KafkaError

        overrides = (
            f"zookeeper.connect={self.connect}",
            f"zookeeper.connection.timeout.ms={max(1, int(self.timeout * 1000))}",
        )

        async def session() -> _Answer:
            settings = ZooKeeperSettings.of(BrokerConfig.load(self.config_file, overrides))
            assert settings is not None
            zookeeper = KazooSession(settings, asyncio.get_running_loop())
            await zookeeper.open(makes_chroot=False)
            try:
                if await zookeeper.exists("/") is None:
                    raise click.ClickException(f"{self.connect}: ZooKeeper has no path {settings.chroot}")
                return await call(ConsumerGroupZnodes(zookeeper))
            finally:
                await zookeeper.close()

        try:
            return asyncio.run(session())
        except (KafkaError, ConfigError, ZooKeeperSettingsError) as error:
            raise click.ClickException(str(error)) from None

    def group(self, group_id: str) -> OldGroup:
        """A group that there is.  ClickException."""
        found = self.ask(lambda znodes: znodes.group(group_id))
        if found.is_empty:
            raise click.ClickException(f"{group_id}: there is no such group in ZooKeeper")
        return found


def list_old_groups(servers: Servers, as_json: bool) -> int:
    """Names, members and offsets of all groups."""

    async def read(znodes: ConsumerGroupZnodes) -> list[OldGroup]:
        return [await znodes.group(name) for name in await znodes.groups()]

    found = servers.ask(read)
    rows = [
        {"group": each.group_id, "members": len(each.members), "offsets": len(each.offsets), "alive": each.is_alive}
        for each in found
    ]
    print_rows(rows, ("GROUP", "MEMBERS", "OFFSETS"), as_json, itemgetter("group", "members", "offsets"))
    return print_errors(_nonsense(found))


def describe_old_groups(servers: Servers, cluster: Cluster, names: tuple[str, ...], as_json: bool) -> int:
    """Offsets, lag, owners and members."""
    found = [servers.group(name) for name in names]
    places = sorted({each for group in found for each in (*group.offsets, *group.owners)})
    with cluster.admin() as admin:
        ends = admin.do(admin.offsets_of(places, LATEST, skips=True))
    groups = [_described(group, ends) for group in found]
    if as_json:
        print_json(groups)
    else:
        for group in groups:
            click.echo(f"{group['group']}  in ZooKeeper  members {len(group['members'])}")
            if group["partitions"]:
                rows = [tuple(each.values()) for each in group["partitions"]]
                print_table(("TOPIC", "PARTITION", "OFFSET", "END", "LAG", "OWNER"), rows)
            if group["members"]:
                members = [
                    (each["member"], each["pattern"], ", ".join(f"{t} ({n})" for t, n in each["threads"].items()))
                    for each in group["members"]
                ]
                print_table(("MEMBER", "PATTERN", "TOPICS (THREADS)"), members)
    return print_errors(_nonsense(found))


def _described(group: OldGroup, ends: Mapping[Place, int]) -> JsonObject:
    partitions = []
    for each in sorted({*group.offsets, *group.owners}):
        offset, end = group.offsets.get(each), ends.get(each)
        lag = max(0, end - offset) if offset is not None and end is not None else None
        row = {"topic": each.topic, "partition": each.partition, "offset": offset, "end_offset": end, "lag": lag}
        partitions.append({**row, "owner": group.owners.get(each)})
    members = [
        {"member": name, "pattern": member.pattern, "threads": dict(member.subscription)}
        for name, member in sorted(group.members.items())
    ]
    return {"group": group.group_id, "partitions": partitions, "members": members}


def _nonsense(groups: list[OldGroup]) -> list[str]:
    return [f"{path} makes no sense: {reason}" for group in groups for path, reason in sorted(group.nonsense.items())]


@click.command("move-offsets")
@click.argument("names", nargs=-1, required=True, metavar="GROUP…")
@click.option("--zookeeper", required=True, metavar=SERVERS, help="Where the offsets are.")
@zookeeper_config_option
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@click.option("--force", is_flag=True, help="Also while consumers of the group run; they commit to ZooKeeper again.")
@json_option
@cluster_options
def move_offsets(
    cluster: Cluster,
    names: tuple[str, ...],
    zookeeper: str,
    zookeeper_config: str | None,
    execute: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Commit what groups of Kafka 0.8 have in ZooKeeper for the groups of the same names that brokers keep.

    A partition for which as much or more is committed already stays as it is.  ZooKeeper keeps its offsets.
    """
    servers = Servers(zookeeper, zookeeper_config, cluster.timeout)
    groups = [servers.group(name) for name in names]
    alive = [group.group_id for group in groups if group.is_alive]
    if alive and execute and not force:
        raise click.ClickException(
            f"{', '.join(alive)}: consumers of the group run, and would go on to commit to ZooKeeper; stop them first, "
            "or add --force"
        )
    moves: list[JsonObject] = []
    with cluster.admin() as admin:
        for group in groups:
            committed = admin.do(committed_offsets(admin, group.group_id))
            ends = admin.do(admin.offsets_of(group.offsets, LATEST, skips=True))
            rows = [_move(each, group.offsets[each], committed, ends) for each in sorted(group.offsets)]
            targets = {(row["topic"], row["partition"]): row["new_offset"] for row in rows if row["stays"] is None}
            if execute and targets:
                commit(admin, group.group_id, targets)
            moves.append({"group": group.group_id, "executed": execute, "partitions": rows})
    if as_json:
        print_json(moves)
    else:
        for move in moves:
            print_table(
                ("TOPIC", "PARTITION", "IN ZOOKEEPER", "COMMITTED", "NEW", "STAYS"),
                [tuple(row.values()) for row in move["partitions"]],
                title=move["group"],
            )
        for name in alive:
            click.echo(f"{name}: consumers of the group run")
        if not execute:
            click.echo("nothing changed: add --execute to do it")
    return print_errors(_nonsense(groups))


def _move(partition: Place, offset: int, committed: Mapping[Place, int], ends: Mapping[Place, int]) -> JsonObject:
    """What becomes of one partition; `stays` is the reason why it does."""
    old = committed.get(partition)
    stays = None
    if partition not in ends:
        stays = "there is no such partition"
    elif offset < 0:
        stays = "no offset"
    elif old is not None and old >= offset:
        stays = "committed already" if old == offset else "more is committed"
    return {
        "topic": partition[0],
        "partition": partition[1],
        "zookeeper_offset": offset,
        "old_offset": old,
        "new_offset": offset if stays is None else old,
        "stays": stays,
    }
