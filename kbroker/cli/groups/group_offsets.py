"""Offsets of groups and partitions by the admin client, as several commands read and commit them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.connection import Cluster, admin_api, client_error, describe_error, result_of, results_of
from kbroker.cli.groups.group_kinds import where_shown

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Partition = tuple[str, int]
_MOST_CLIENTS = 3


def committed_offsets(admin: AdminClient, cluster: Cluster, group: str) -> dict[Partition, int]:
    """What a group has committed.  ClickException."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    try:
        request = [ConsumerGroupTopicPartitions(group)]
        futures = admin.list_consumer_group_offsets(request, request_timeout=cluster.timeout)
    except Exception as error:
        raise client_error(error) from None
    answer = result_of(futures[group], cluster.timeout)
    return {(tp.topic, tp.partition): tp.offset for tp in answer.topic_partitions if tp.offset >= 0}


def end_offsets(admin: AdminClient, cluster: Cluster, partitions: object) -> dict[Partition, int]:
    """The ends of the partitions that there are."""
    return list_offsets(admin, cluster, partitions, admin_api().OffsetSpec.latest())


def list_offsets(admin: AdminClient, cluster: Cluster, partitions: Any, spec: Any) -> dict[Partition, int]:
    """What ListOffsets says of each partition that there is; a deleted topic may have left offsets behind."""
    from confluent_kafka import TopicPartition

    if not partitions:
        return {}
    futures = admin.list_offsets({TopicPartition(*p): spec for p in partitions}, request_timeout=cluster.timeout)
    offsets, _unknown = results_of(futures, cluster.timeout)
    return {(tp.topic, tp.partition): result.offset for tp, result in offsets.items()}


def members_in_the_way(admin: AdminClient, cluster: Cluster, group: str) -> str:
    """Why the offsets of a group that has members are not moved, and what to do; empty for a group without.

    A broker lets only members commit for it then.  The sentence names clients, with the number of their members.

    ClickException.
    """
    try:
        futures = admin.describe_consumer_groups([group], request_timeout=cluster.timeout)
    except Exception as error:
        raise client_error(error) from None
    found = result_of(futures[group], cluster.timeout)
    if not found.members:
        return ""
    clients = Counter(f"{member.client_id} at {member.host.lstrip('/')}" for member in found.members)
    shown = ", ".join(name if count == 1 else f"{name} ({count})" for name, count in clients.most_common(_MOST_CLIENTS))
    more = ", …" if len(clients) > _MOST_CLIENTS else ""
    return (
        f"group {group} is active ({found.state.name.lower()}, members: {len(found.members)}), and offsets are moved "
        f"only while it has no members: stop {shown}{more} first"
    )


def commit_offsets(admin: AdminClient, cluster: Cluster, group: str, targets: dict[Partition, int]) -> None:
    """Commit for a group without members.  ClickException."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    if members := members_in_the_way(admin, cluster, group):
        raise click.ClickException(members)
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in targets.items()]
    try:
        request = [ConsumerGroupTopicPartitions(group, offsets)]
        futures = admin.alter_consumer_group_offsets(request, request_timeout=cluster.timeout)
    except Exception as error:
        raise client_error(error) from None
    for tp in result_of(futures[group], cluster.timeout).topic_partitions:
        if tp.error is not None:
            elsewhere = where_shown(cluster, group)
            raise click.ClickException(
                f"{tp.topic}-{tp.partition}: {describe_error(tp.error)}{elsewhere and '; '}{elsewhere}"
            )
