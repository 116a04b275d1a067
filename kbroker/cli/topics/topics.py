"""`kbroker topics`: list, describe, create, alter and delete topics of any Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from kbroker.cli import completion
from kbroker.cli.connection import (
    UNKNOWN_TOPIC,
    Cluster,
    admin_api,
    client_error,
    cluster_options,
    result_of,
    results_of,
)
from kbroker.cli.output import json_option, parse_pairs, print_errors, print_json, print_table
from kbroker.config import topic_config_rows
from kbroker.errors import ErrorCode
from kbroker.nearest import unknown_hint
from kbroker.types import JsonObject, is_internal

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata

INVALID_CONFIG = ErrorCode.INVALID_CONFIG.name
TOPIC_SOURCE = 1
"""DescribeConfigs' source of a value that the topic itself sets."""


@click.group("topics")
def command() -> None:
    """List, describe, create, alter and delete topics."""


@command.command("list")
@click.option("--internal/--no-internal", default=True, help="Include topics such as __consumer_offsets.")
@json_option
@cluster_options
def list_topics(cluster: Cluster, internal: bool, as_json: bool) -> None:
    """List topics with their partition counts."""
    admin = cluster.admin()
    topics = [
        {
            "name": name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(_metadata(admin, cluster).topics.items())
        if internal or not is_internal(name)
    ]
    if as_json:
        print_json(topics)
    else:
        print_table(("TOPIC", "PARTITIONS", "REPLICAS"), [tuple(topic.values()) for topic in topics])


@command.command("describe")
@click.argument("names", nargs=-1, shell_complete=completion.topics)
@click.option("--all-configs", is_flag=True, help="Show every setting, not only those that were set.")
@json_option
@cluster_options
def describe_topics(cluster: Cluster, names: tuple[str, ...], all_configs: bool, as_json: bool) -> int:
    """Describe topics: partitions, replicas, offsets and settings.  All topics when none is named."""
    admin = cluster.admin()
    wanted = list(names) or sorted(_metadata(admin, cluster).topics)
    topics, errors = _describe(admin, cluster, wanted, all_configs)
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


def _topic_id(topic_id: object) -> str | None:
    # The client prints plain base64 where Kafka's own form is the URL-safe one.
    return None if topic_id is None else str(topic_id).replace("+", "-").replace("/", "_")


def _ids(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))


def _metadata(admin: AdminClient, cluster: Cluster) -> ClusterMetadata:
    try:
        return admin.list_topics(timeout=cluster.timeout)
    except Exception as error:
        raise client_error(error) from None


def _describe(
    admin: AdminClient, cluster: Cluster, names: list[str], all_configs: bool
) -> tuple[list[dict[str, object]], list[str]]:
    from confluent_kafka import TopicCollection

    api = admin_api()

    if not names:
        return [], []
    found, errors = results_of(
        admin.describe_topics(TopicCollection(names), request_timeout=cluster.timeout), cluster.timeout, cluster
    )
    resources = [api.ConfigResource(api.ResourceType.TOPIC, name) for name in found]
    futures = admin.describe_configs(resources, request_timeout=cluster.timeout) if resources else {}
    configs = {resource.name: result_of(future, cluster.timeout) for resource, future in futures.items()}
    offsets = _offsets(admin, cluster, found)
    topics = []
    for name, topic in sorted(found.items()):
        topics.append(
            {
                "name": name,
                "id": _topic_id(topic.topic_id),
                "internal": topic.is_internal,
                "configs": {
                    entry.name: entry.value
                    for entry in sorted(configs[name].values(), key=lambda entry: str(entry.name))
                    if all_configs or entry.source == TOPIC_SOURCE
                },
                "partitions": [
                    {
                        "partition": partition.id,
                        "leader": partition.leader.id if partition.leader is not None else None,
                        "replicas": [node.id for node in partition.replicas],
                        "isr": [node.id for node in partition.isr],
                        "start_offset": offsets.get((name, partition.id), (None, None))[0],
                        "end_offset": offsets.get((name, partition.id), (None, None))[1],
                    }
                    for partition in sorted(topic.partitions, key=lambda partition: int(partition.id))
                ],
            }
        )
    return topics, errors


def _offsets(admin: AdminClient, cluster: Cluster, topics: JsonObject) -> dict[tuple[str, int], tuple[int, int]]:
    """First and end offset of every partition that has a leader."""
    from confluent_kafka import TopicPartition

    api = admin_api()

    partitions = [
        (name, partition.id)
        for name, topic in topics.items()
        for partition in topic.partitions
        if partition.leader is not None and partition.leader.id >= 0
    ]
    if not partitions:
        return {}
    ends: list[dict[tuple[str, int], int]] = []
    for spec in (api.OffsetSpec.earliest(), api.OffsetSpec.latest()):
        futures = admin.list_offsets({TopicPartition(*p): spec for p in partitions}, request_timeout=cluster.timeout)
        ends.append({(tp.topic, tp.partition): result_of(f, cluster.timeout).offset for tp, f in futures.items()})
    return {partition: (ends[0][partition], ends[1][partition]) for partition in partitions}


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
    api = admin_api()

    settings = parse_pairs(configs, "--config")
    topics = [api.NewTopic(name, partitions or -1, replication_factor or -1, config=settings) for name in names]
    admin = cluster.admin()
    try:
        futures = admin.create_topics(topics, request_timeout=cluster.timeout, validate_only=validate_only)
    except Exception as error:
        raise client_error(error) from None
    created, errors = results_of(futures, cluster.timeout)
    errors = [error + _near_setting(error, settings) for error in errors]
    if if_not_exists:
        errors = [error for error in errors if "TOPIC_ALREADY_EXISTS" not in error]
    _report(list(created), "valid" if validate_only else "created", as_json)
    return print_errors(errors)


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
    admin = cluster.admin()
    try:
        if partitions is not None:
            _add_partitions(admin, cluster, name, partitions)
        if settings or deleted:
            _alter_configs(admin, cluster, name, settings, deleted)
    except click.ClickException as error:
        near = cluster.near_topic(name) if error.message.startswith(UNKNOWN_TOPIC) else ""
        near = near or _near_setting(error.message, [*settings, *deleted])
        raise click.ClickException(error.message.rstrip(".") + near if near else error.message) from None
    except click.Abort:
        raise
    except Exception as error:
        raise client_error(error) from None
    _report([name], "altered", as_json)


def _near_setting(error: str, names: Iterable[str]) -> str:
    return unknown_hint(names, (row.name for row in topic_config_rows())) if INVALID_CONFIG in error else ""


def _add_partitions(admin: AdminClient, cluster: Cluster, name: str, count: int) -> None:
    api = admin_api()

    futures = admin.create_partitions([api.NewPartitions(name, count)], request_timeout=cluster.timeout)
    result_of(futures[name], cluster.timeout)


def _alter_configs(
    admin: AdminClient, cluster: Cluster, name: str, settings: dict[str, str], deleted: tuple[str, ...]
) -> None:
    api = admin_api()

    entries = [api.ConfigEntry(k, v, incremental_operation=api.AlterConfigOpType.SET) for k, v in settings.items()]
    entries += [api.ConfigEntry(key, None, incremental_operation=api.AlterConfigOpType.DELETE) for key in deleted]
    resource = api.ConfigResource(api.ResourceType.TOPIC, name, incremental_configs=entries)
    futures = admin.incremental_alter_configs([resource], request_timeout=cluster.timeout)
    result_of(futures[resource], cluster.timeout)


@command.command("delete")
@click.argument("names", nargs=-1, required=True, shell_complete=completion.topics)
@click.option("--if-exists", is_flag=True, help="Succeed when the topic does not exist.")
@json_option
@cluster_options
def delete_topics(cluster: Cluster, names: tuple[str, ...], if_exists: bool, as_json: bool) -> int:
    """Delete topics and their data."""
    admin = cluster.admin()
    try:
        futures = admin.delete_topics(list(names), request_timeout=cluster.timeout)
    except Exception as error:
        raise client_error(error) from None
    gone, errors = results_of(futures, cluster.timeout, None if if_exists else cluster)
    if if_exists:
        errors = [error for error in errors if UNKNOWN_TOPIC not in error]
    _report(list(gone), "deleted", as_json)
    return print_errors(errors)


def _report(names: list[str], what: str, as_json: bool) -> None:
    if as_json:
        print_json([{"name": name, "result": what} for name in names])
    else:
        for name in names:
            click.echo(f"{name}: {what}")
