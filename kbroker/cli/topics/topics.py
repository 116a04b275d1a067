"""`kbroker topics`: list, describe, create, alter and delete topics of any Kafka, and delete their records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kbroker.administration import topics as administration
from kbroker.administration.admin import Place
from kbroker.administration.configs import Kind, Source, alter_configs, describe_configs
from kbroker.administration.topics import BY_DEFAULT, NewTopic
from kbroker.cli import completion
from kbroker.cli.connection import Cluster, cluster_options
from kbroker.cli.output import json_option, parse_pairs, print_errors, print_json, print_lines, print_rows, print_table
from kbroker.cli.topics.delete_records import command as delete_records
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.nearest import did_you_mean, unknown_hint
from kbroker.schemas import wire
from kbroker.types import EARLIEST, LATEST, ZERO_UUID, JsonObject, is_internal, uuid_to_text

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin

    _Topic = wire.MetadataResponse.MetadataResponseTopic


class _Topics(click.Group):
    """Says which command a misspelt word is nearest to."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None and not ctx.resilient_parsing:
            # `delete-everything` means less than `delete`: the topic itself would be gone.
            narrower = [name for name in self.commands if not cmd_name.startswith(name)]
            raise click.UsageError(f"No such command {cmd_name!r}{did_you_mean(cmd_name, narrower)}", ctx)
        return found


@click.group("topics", cls=_Topics)
def command() -> None:
    """List, describe, create, alter and delete topics, and delete their records."""


command.add_command(delete_records)


@command.command("list")
@click.option("--internal/--no-internal", default=True, help="Include topics such as __consumer_offsets.")
@json_option
@cluster_options
def list_topics(cluster: Cluster, internal: bool, as_json: bool) -> None:
    """List topics with their partition counts."""
    with cluster.admin() as admin:
        found = _metadata(admin)
    topics = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(each.replica_nodes) for each in topic.partitions), default=0),
        }
        for topic in found
        if internal or not is_internal(str(topic.name))
    ]
    print_rows(topics, ("TOPIC", "PARTITIONS", "REPLICAS"), as_json)


@command.command("describe")
@click.argument("names", nargs=-1, shell_complete=completion.topics)
@click.option("--all-configs", is_flag=True, help="Show every setting, not only those that were set.")
@json_option
@cluster_options
def describe_topics(cluster: Cluster, names: tuple[str, ...], all_configs: bool, as_json: bool) -> int:
    """Describe topics: partitions, replicas, offsets and settings.  All topics when none is named."""
    with cluster.admin() as admin:
        topics, errors = _describe(admin, names, all_configs)
    if as_json:
        print_json(topics)
    else:
        for topic in topics:
            _print_topic(topic)
    return print_errors(errors)


def _print_topic(topic: JsonObject) -> None:
    settings = ", ".join(f"{key}={value}" for key, value in topic["configs"].items()) or "all default"
    click.echo(f"{topic['name']}  id {topic['id'] or 'none'}  settings: {settings}")
    columns = ("PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END")
    print_table(
        columns,
        [
            (p["partition"], p["leader"], _ids(p["replicas"]), _ids(p["isr"]), p["start_offset"], p["end_offset"])
            for p in topic["partitions"]
        ],
    )


def _ids(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))


def _metadata(admin: ClusterAdmin, names: Sequence[str] | None = None) -> list[_Topic]:
    """Topics by name; all unless some are named."""
    wanted = None if names is None else [wire.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    answer = admin.send(wire.MetadataResponse, wire.MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    return sorted(answer.topics, key=lambda each: str(each.name))


def _describe(admin: ClusterAdmin, names: Sequence[str], all_configs: bool) -> tuple[list[JsonObject], list[str]]:
    found, errors = {}, []
    for topic in _metadata(admin, names or None):
        try:
            refuse(topic.error_code)
            found[str(topic.name)] = topic
        except KafkaError as error:
            errors.append(f"{topic.name}: {_in_words(admin, error, topic.name)}")
    configs = admin.do(describe_configs(admin, Kind.TOPIC, [*found])) if found else {}
    led = [(name, row.partition_index) for name, each in found.items() for row in each.partitions if row.leader_id >= 0]
    first, end = (admin.do(admin.offsets_of(led, at)) for at in (EARLIEST, LATEST))
    topics = [
        {
            "name": name,
            "id": None if topic.topic_id == ZERO_UUID else uuid_to_text(topic.topic_id),
            "internal": topic.is_internal,
            "configs": {
                row.name: row.value for row in configs[name] if all_configs or row.config_source == Source.TOPIC
            },
            "partitions": _partitions(topic, first, end),
        }
        for name, topic in found.items()
    ]
    return topics, errors


def _partitions(topic: _Topic, first: Mapping[Place, int], end: Mapping[Place, int]) -> list[JsonObject]:
    return [
        {
            "partition": row.partition_index,
            "leader": row.leader_id if row.leader_id >= 0 else None,
            "replicas": row.replica_nodes,
            "isr": row.isr_nodes,
            "start_offset": first.get((str(topic.name), row.partition_index)),
            "end_offset": end.get((str(topic.name), row.partition_index)),
        }
        for row in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]


def _in_words(admin: ClusterAdmin, error: KafkaError, topic: str | None, settings: Iterable[str] = ()) -> str:
    """A refusal, with the name of a topic or of a setting that may have been meant."""
    from kbroker.cli.refusals import text_of
    from kbroker.config import topic_config_rows

    near, text = "", text_of(error)
    if topic is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        near = admin.near(topic, admin.topics)
    elif error.code is ErrorCode.INVALID_CONFIG:
        near = unknown_hint(settings, (row.name for row in topic_config_rows()))
    return text.rstrip(".") + near if near else text


@command.command("create")
@click.argument("names", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="[default: the broker's num.partitions]")
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), help="[default: the broker's]")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic setting.")
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic exists.")
@click.option("--validate-only", is_flag=True, help="Check, and create nothing.")
@json_option
@cluster_options
def create_topics(
    cluster: Cluster,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
    as_json: bool,
) -> int:
    """Create topics."""
    settings = parse_pairs(configs, "--config")
    topics = [NewTopic(name, partitions or BY_DEFAULT, replication_factor or BY_DEFAULT, settings) for name in names]
    with cluster.admin() as admin:
        rows = admin.do(administration.create_topics(admin, topics, validate_only=validate_only))
        quiet = {ErrorCode.TOPIC_ALREADY_EXISTS} if if_not_exists else ()
        return _report(admin, rows, "valid" if validate_only else "created", as_json, quiet, settings)


@command.command("alter")
@click.argument("name", shell_complete=completion.topics)
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="The new, larger partition count.")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a topic setting.")
@click.option("-d", "--delete-config", "deleted", multiple=True, metavar="KEY", help="Go back to the default.")
@json_option
@cluster_options
def alter_topic(
    cluster: Cluster,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    as_json: bool,
) -> None:
    """Add partitions to a topic, or change its settings."""
    settings = parse_pairs(configs, "--config")
    if partitions is None and not settings and not deleted:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    with cluster.admin() as admin:
        try:
            if partitions is not None:
                admin.do(administration.add_partitions(admin, name, partitions))
            if settings or deleted:
                admin.do(alter_configs(admin, Kind.TOPIC, name, settings, deleted))
        except KafkaError as error:
            raise click.ClickException(_in_words(admin, error, name, [*settings, *deleted])) from None
    _print_results([name], "altered", as_json)


@command.command("delete")
@click.argument("names", nargs=-1, required=True, shell_complete=completion.topics)
@click.option("--if-exists", is_flag=True, help="Succeed when the topic does not exist.")
@json_option
@cluster_options
def delete_topics(cluster: Cluster, names: tuple[str, ...], if_exists: bool, as_json: bool) -> int:
    """Delete topics and their data."""
    with cluster.admin() as admin:
        rows = admin.do(administration.delete_topics(admin, names))
        quiet = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if if_exists else ()
        return _report(admin, rows, "deleted", as_json, quiet)


def _report(
    admin: ClusterAdmin,
    rows: Iterable[wire.CreateTopicsResponse.CreatableTopicResult | wire.DeleteTopicsResponse.DeletableTopicResult],
    what: str,
    as_json: bool,
    quiet: Collection[int],
    settings: Iterable[str] = (),
) -> int:
    """Prints what was done to which topics, and the errors of the others but the quiet ones."""
    names, errors = [], []
    for row in rows:
        try:
            # Brokers speak of a server that does not host a partition.
            is_absent = row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refuse(row.error_code, None if is_absent else row.error_message)
            names.append(str(row.name))
        except KafkaError as error:
            if error.code not in quiet:
                words = _in_words(admin, error, row.name, settings)
                if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    operation = "DELETE" if what == "deleted" else "CREATE"
                    words = f"{words.rstrip('.')}: this needs {operation} on the topic or on the cluster"
                errors.append(f"{row.name}: {words}")
    _print_results(names, what, as_json)
    return print_errors(errors)


def _print_results(names: Sequence[str], what: str, as_json: bool) -> None:
    print_lines([{"name": name, "result": what} for name in names], "{name}: {result}".format_map, as_json)
