"""What a record that is too large is too large for: the client's limit, the topic's, or the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbroker.administration.configs import Kind, describe_configs

if TYPE_CHECKING:
    from kbroker.cli.connection import Cluster

TOO_LARGE = "MSG_SIZE_TOO_LARGE"
"""librdkafka's name of MESSAGE_TOO_LARGE."""
OF_CLIENT = "message.max.bytes"
OF_TOPIC = "max.message.bytes"
CLIENT_DEFAULT = 1_000_000
"""librdkafka's own."""


def is_too_large(error: Exception) -> bool:
    """Whether the client itself does not take a record for its size."""
    from confluent_kafka import KafkaError, KafkaException

    reason = error.args[0] if isinstance(error, KafkaException) else None
    return isinstance(reason, KafkaError) and reason.name() == TOO_LARGE


def client_limit(cluster: Cluster, size: int) -> str:
    """The words for a record of so many bytes that the client does not take."""
    limit = int(cluster.settings.get(OF_CLIENT, CLIENT_DEFAULT))
    return f"the record has {size:,} bytes, and the client's limit is {limit:,}: -X {OF_CLIENT}=… raises it"


def broker_limit(cluster: Cluster, topic: str) -> str:
    """The words for a batch that the broker refuses; empty where the topic's limit cannot be asked for."""
    try:
        with cluster.admin() as admin:
            (row,) = admin.do(describe_configs(admin, Kind.TOPIC, [topic], [OF_TOPIC]))[topic]
        limit = int(row.value or "")
    except (click.ClickException, ValueError):
        return ""
    return (
        f"the topic's limit is {OF_TOPIC}={limit}, for a batch of records as it is sent: "
        f"`kbroker topics alter {topic} -c {OF_TOPIC}=…` raises it"
    )
