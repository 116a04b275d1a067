"""Topics that are compacted, by Kafka and by kbroker."""

from __future__ import annotations

from typing import Any

TOPIC = "table"
SEGMENT_BYTES = 1 << 20
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    # Nothing is dirtier than wholly dirty: Kafka leaves the log alone until told otherwise.
    "min.cleanable.dirty.ratio": "1.0",
    "file.delete.delay.ms": "0",
}


def create(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=TOPIC_SETTINGS)])[TOPIC].result(30)


def ask_for_compaction(bootstrap: str) -> None:
    from confluent_kafka import admin as api

    names: Any = api
    admin = names.AdminClient({"bootstrap.servers": bootstrap})
    entry = names.ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=names.AlterConfigOpType.SET)
    resource = names.ConfigResource(names.ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
