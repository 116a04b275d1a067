"""Offsets of groups and partitions by the admin client, as several commands read and commit them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.connection import Cluster, admin_api, client_error, result_of, results_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Partition = tuple[str, int]


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


def commit_offsets(admin: AdminClient, cluster: Cluster, group: str, targets: dict[Partition, int]) -> None:
    """Commit for a group without members.  ClickException."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in targets.items()]
    try:
        request = [ConsumerGroupTopicPartitions(group, offsets)]
        futures = admin.alter_consumer_group_offsets(request, request_timeout=cluster.timeout)
    except Exception as error:
        raise client_error(error) from None
    for tp in result_of(futures[group], cluster.timeout).topic_partitions:
        if tp.error is not None:
            raise click.ClickException(f"{tp.topic}-{tp.partition}: {tp.error.str()}")
