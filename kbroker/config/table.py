"""Every setting by name, where kbroker's defaults differ from Kafka's, and what older Kafkas had."""

from __future__ import annotations

from kbroker.config.client_metrics_rows import CLIENT_METRICS_ROWS
from kbroker.config.cluster_rows import CLUSTER_ROWS
from kbroker.config.coordinator_rows import COORDINATOR_ROWS
from kbroker.config.group_rows import GROUP_ROWS
from kbroker.config.log_rows import LOG_ROWS
from kbroker.config.quorum_rows import QUORUM_ROWS
from kbroker.config.remote_rows import REMOTE_ROWS
from kbroker.config.row import ConfigRow, parse_rows
from kbroker.config.security_rows import SECURITY_ROWS
from kbroker.config.server_rows import SERVER_ROWS
from kbroker.config.topic_rows import TOPIC_ROWS

TOPIC_TABLE: dict[str, ConfigRow] = parse_rows(TOPIC_ROWS, "topic")
GROUP_TABLE: dict[str, ConfigRow] = parse_rows(GROUP_ROWS, "group")
CLIENT_METRICS_TABLE: dict[str, ConfigRow] = parse_rows(CLIENT_METRICS_ROWS, "client metrics")
BROKER_TABLE: dict[str, ConfigRow] = {
    name: row
    for rows in (SERVER_ROWS, LOG_ROWS, COORDINATOR_ROWS, CLUSTER_ROWS, SECURITY_ROWS, REMOTE_ROWS, QUORUM_ROWS)
    for name, row in parse_rows(rows, "broker").items()
}

DIFFERENT_DEFAULTS: dict[str, tuple[str, str]] = {
    "listeners": ("PLAINTEXT://:9092", "without TLS a broker should not face a network unless the settings say so"),
    "log.dir": ("/tmp/kafka-logs", "data must survive a reboot; see Data directories"),
    "node.id": ("(required)", "one node needs no numbering"),
    "process.roles": ("(required)", "a node that is its whole cluster needs no roles; `broker` joins a KRaft cluster"),
    "controller.listener.names": ("(required)", "only a broker of a KRaft cluster has controllers elsewhere"),
    "socket.listen.backlog.size": ("50", "thousands of clients that reconnect at once must not wait for retries"),
    "socket.send.buffer.bytes": (
        "102400",
        "the system grows them with the load; a fixed one costs CPU, and rate over long paths",
    ),
    "socket.receive.buffer.bytes": ("102400", "as for socket.send.buffer.bytes"),
    "queued.max.request.bytes": ("-1", "memory for requests is bounded"),
    "group.initial.rebalance.delay.ms": ("3000", "a group's first member should not wait on a single node"),
}
"""Settings whose default is not Kafka's: Kafka's default, and why."""

DEPRECATED: dict[str, str] = {
    "broker.id": "node.id is its name now",
    "group.coordinator.rebalance.protocols": "without it all kinds of groups are served",
    "inter.broker.protocol.version": "levels of features took its place (kafka-features)",
    "log.cleaner.enable": "compaction is on without it",
    "log.message.downconversion.enable": "Kafka 4 has no consumers that need it",
    "log.message.format.version": "Kafka 4 stores batches alone",
    "remote.log.manager.thread.pool.size": "there are settings for copying, expiration and followers now",
}
"""Settings that Kafka advises against or has removed since, and why they can go."""

_REMOVED = """
advertised.host.name advertised.port auto.include.jmx.reporter delegation.token.master.key
eligible.leader.replicas.enable group.share.max.groups host.name log.message.timestamp.difference.max.ms
offsets.commit.required.acks password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret port quota.consumer.default
quota.producer.default zookeeper.sync.time.ms
"""
REMOVED: frozenset[str] = frozenset(_REMOVED.split())
"""Settings of older Kafkas that Kafka 4 no longer knows."""


def broker_config_rows() -> list[ConfigRow]:
    """Every broker setting, in the tables' order."""
    return list(BROKER_TABLE.values())


def topic_config_rows() -> list[ConfigRow]:
    """Every topic setting, in the order in which Kafka checks them."""
    return list(TOPIC_TABLE.values())


def group_config_rows() -> list[ConfigRow]:
    """Every setting of a group."""
    return list(GROUP_TABLE.values())


def client_metrics_rows() -> list[ConfigRow]:
    """Every setting of a subscription to client metrics."""
    return list(CLIENT_METRICS_TABLE.values())
