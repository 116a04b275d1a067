"""Java's share consumers."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.broker_process import BrokerProcess
from tests.share.java_member import JavaMember, Polled

TIMES = {"share_session_timeout_ms": "4000", "share_heartbeat_interval_ms": "500"}


def prepare(broker: BrokerProcess, topic: str, partitions: int = 1, **settings: str) -> None:
    """A topic, and a group of the same name that begins at its beginning."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    settings = {"share_auto_offset_reset": "earliest", "share_record_lock_duration_ms": "6000", **TIMES, **settings}
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result()


def poll_until(members: list[JavaMember], enough: Callable[[list[Polled]], bool], seconds: float = 40) -> list[Polled]:
    """What the members are given until that is enough."""
    seen: list[Polled] = []
    deadline = time.monotonic() + seconds
    while not enough(seen):
        assert time.monotonic() < deadline, f"only {len(seen)} records came"
        for member in members:
            seen += member.poll(300)
    return seen
