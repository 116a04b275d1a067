"""What settings do: each is given a value of its own, and the part that it is for runs by it.

Defaults of topics and of groups, bounds of groups, internal topics, and how often the tasks of a broker run.  What only
a client sees is in tests/handlers/test_settings_at_work.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kbroker.broker import Broker
from kbroker.config import (
    BrokerConfig,
    ConfigRow,
    broker_config_rows,
    group_config,
    group_config_rows,
    log_config,
    topic_config_rows,
    validate_group_config,
)
from kbroker.errors import InvalidConfigError
from kbroker.metadata.internal_topics import internal_topic
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

BROKER_ROWS = {row.name: row for row in broker_config_rows()}
UNITS = {"hours": 3_600_000, "minutes": 60_000}
OTHER_TEXTS = {
    "log.cleanup.policy": "compact",
    "compression.type": "zstd",
    "log.message.timestamp.type": "LogAppendTime",
    "log.message.format.version": "0.9.0",
}
TOPIC_DEFAULTS = [(row, name) for row in topic_config_rows() if row.implemented for name in row.synonyms]
GROUP_DEFAULTS = [(row, row.synonyms[0]) for row in group_config_rows() if row.implemented and row.synonyms]
GROUP_BOUNDS = [
    (row, bound, f"group.{kind}.{bound}.{rest}")
    for row in group_config_rows()
    for kind, _, rest in [row.name.partition(".")]
    for bound in ("min", "max")
    if f"group.{kind}.{bound}.{rest}" in BROKER_ROWS
]


def other_text(row: ConfigRow) -> str:
    """A valid value that is not the default."""
    if row.name in OTHER_TEXTS:
        return OTHER_TEXTS[row.name]
    if row.type.name == "BOOLEAN":
        return "false" if row.default else "true"
    if row.type.name == "DOUBLE":
        return "0.25"
    low, _, high = row.check.partition("..")
    if high:
        # Behind ".." the upper bound, and perhaps what is allowed besides.
        return str(int(low) + 1 if int(low) + 1 != row.default else int(high.split(" ")[0]))
    return "5000001" if row.name in ("log.segment.bytes", "log.index.size.max.bytes") else "5001"


@pytest.mark.parametrize(("row", "name"), TOPIC_DEFAULTS, ids=[name for _, name in TOPIC_DEFAULTS])
def test_topics_without_a_setting_of_their_own_have_the_brokers(row: ConfigRow, name: str) -> None:
    """A retention, or a limit, that was set for all topics would rule none of them."""
    text = other_text(BROKER_ROWS[name])
    field = row.name.replace(".", "_")
    value = getattr(log_config(BrokerConfig.from_mapping({name: text}), {}), field)
    expected = BROKER_ROWS[name].parse(text)
    unit = UNITS.get(name.rpartition(".")[2], 1)
    assert value == (frozenset(expected) if row.name == "cleanup.policy" else expected * unit if unit > 1 else expected)
    assert value != getattr(log_config(BrokerConfig.from_mapping({}), {}), field)


@pytest.mark.parametrize(("row", "name"), GROUP_DEFAULTS, ids=[name for _, name in GROUP_DEFAULTS])
def test_groups_without_a_setting_of_their_own_have_the_brokers(row: ConfigRow, name: str) -> None:
    """Sessions and assignments would go by other times than the broker's settings say."""
    text = other_text(BROKER_ROWS[name])
    values = group_config(BrokerConfig.from_mapping({name: text}), {})
    assert values[row.name] == BROKER_ROWS[name].parse(text) != row.default


@pytest.mark.parametrize(("row", "bound", "name"), GROUP_BOUNDS, ids=[name for _, _, name in GROUP_BOUNDS])
def test_what_a_group_may_set_lies_within_the_brokers_bounds(row: ConfigRow, bound: str, name: str) -> None:
    """A group could give itself a session of a day, and keep its partitions from everybody else."""
    limit = BROKER_ROWS[name]
    beyond = limit.default - 1 if bound == "min" else limit.default + 1
    config = BrokerConfig.from_mapping({})
    own = {row.name: str(beyond)}
    if beyond >= 0:
        with pytest.raises(InvalidConfigError, match=f"{name}$|Value must be"):
            validate_group_config(own, config)
    text = other_text(limit)
    moved = BrokerConfig.from_mapping({name: text})
    stored = {row.name: str(10 * limit.default if bound == "max" else 1000)}
    expected = limit.parse(text)
    if (int(stored[row.name]) > expected) == (bound == "max"):
        assert group_config(moved, stored)[row.name] == expected, "what was stored before the bound was set"


@pytest.mark.parametrize(
    ("topic", "prefix"),
    [
        (GROUP_METADATA_TOPIC, "offsets.topic"),
        (TRANSACTION_STATE_TOPIC, "transaction.state.log"),
        (SHARE_GROUP_STATE_TOPIC, "share.coordinator.state.topic"),
    ],
)
def test_internal_topics_are_made_as_the_settings_say(topic: str, prefix: str) -> None:
    """The partition count of a topic that is hashed into can never be changed again."""
    given = {"num.partitions": 7, "replication.factor": 2, "segment.bytes": 3 << 20, "min.isr": 3}
    settings = {f"{prefix}.{rest}": value for rest, value in given.items() if f"{prefix}.{rest}" in BROKER_ROWS}
    made = internal_topic(topic, BrokerConfig.from_mapping(settings), 5)
    assert (made.num_partitions, made.replication_factor, made.configs["segment.bytes"]) == (7, 2, str(3 << 20))
    assert made.configs.get("min.insync.replicas", "3") == "3"


INTERVALS = {
    "log.flush.offset.checkpoint.interval.ms": "checkpoint recovery points",
    "log.flush.start.offset.checkpoint.interval.ms": "checkpoint log start offsets",
    "replica.high.watermark.checkpoint.interval.ms": "checkpoint high watermarks",
    "log.retention.check.interval.ms": "retention",
    "log.cleaner.backoff.ms": "compaction",
    "producer.id.expiration.check.interval.ms": "expire producer ids",
    "offsets.retention.check.interval.ms": "expire committed offsets",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "abort transactions that have timed out",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "forget transactional ids that have expired",
    "share.coordinator.cold.partition.snapshot.interval.ms": "snapshot cold share state",
    "share.coordinator.state.topic.prune.interval.ms": "prune share state",
}


class NotedTasks:
    """Notes interval and first delay of what a broker runs."""

    def __init__(self) -> None:
        self.noted: dict[str, tuple[Any, Any]] = {}

    def add(self, name: str, interval_ms: Any, _run: Any, initial_delay_ms: int | None = None) -> None:
        self.noted[name] = interval_ms, initial_delay_ms

    def hasten(self, _name: str) -> None:
        """Nothing runs."""

    def stop(self) -> None:
        """Nothing runs."""


def test_tasks_run_as_often_as_the_settings_say(tmp_path: Path) -> None:
    """Expired offsets, open transactions and old segments would stay for another time than was set."""
    settings: dict[str, object] = {name: 100_001 + at for at, name in enumerate(INTERVALS)}
    settings |= {"listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": "none", "log.dirs": str(tmp_path)}
    noted = NotedTasks()

    async def run() -> None:
        broker = Broker(
            BrokerConfig.from_mapping({**settings, "log.initial.task.delay.ms": 77}), asyncio.get_event_loop()
        )
        broker.node.tasks = noted  # type: ignore[assignment]
        await broker.start()
        await broker.stop()

    uvloop.run(run())
    assert {name: noted.noted[task][0] for name, task in INTERVALS.items()} == {
        name: settings[name] for name in INTERVALS
    }
    assert {task for task, (_, delay) in noted.noted.items() if delay == 77} >= {
        "retention",
        "checkpoint recovery points",
        "checkpoint log start offsets",
    }
