"""What is asked of a broker about the settings that it takes while it runs (`tests.handlers.changes`)."""

from __future__ import annotations

from functools import partial

from tests.compat.waiting import wait_for
from tests.handlers.broker_settings import _broker_has, _broker_has_not
from tests.handlers.changes import APPEND, BROKER, DELETE, SET, change, describe, incremental, op, resource
from tests.scenarios.session import Session

TAKEN = {
    "log.cleaner.threads": "2",
    "log.cleaner.io.max.bytes.per.second": "1000000",
    "log.cleaner.dedupe.buffer.size": "67108864",
    "log.cleaner.io.buffer.size": "1048576",
    "log.cleaner.io.buffer.load.factor": "0.75",
    "log.cleaner.backoff.ms": "5000",
    "log.cleaner.delete.retention.ms": "90000",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleaner.min.compaction.lag.ms": "60000",
    "num.network.threads": "4",
    "num.recovery.threads.per.data.dir": "4",
    "max.connections": "5000",
    "max.connections.per.ip": "4000",
    "max.connections.per.ip.overrides": "127.0.0.1:4500",
    "producer.id.expiration.ms": "3600000",
    "message.max.bytes": "2000000",
    "log.segment.bytes": "2097152",
    "log.segment.delete.delay.ms": "1000",
    "log.retention.ms": "7200000",
    "log.retention.bytes": "1000000000",
    "log.roll.ms": "3600000",
    "log.index.interval.bytes": "8192",
    "log.flush.interval.messages": "1000",
    "log.message.timestamp.type": "LogAppendTime",
    "compression.type": "zstd",
    "compression.zstd.level": "5",
}
"""Settings that are changed while the broker runs, each with a value other than the default."""

WRONG = (
    ("log.cleaner.threads", "0"),
    ("log.cleaner.threads", "3"),
    ("log.cleaner.threads", "x"),
    ("log.cleaner.dedupe.buffer.size", "1000"),
    ("log.cleaner.dedupe.buffer.size", "1048576"),
    ("log.cleaner.io.buffer.size", "-1"),
    ("log.cleaner.io.buffer.load.factor", "x"),
    ("log.cleaner.backoff.ms", "-1"),
    ("log.cleaner.min.cleanable.ratio", "2"),
    ("log.cleaner.delete.retention.ms", "-1"),
    ("log.cleaner.enable", "false"),
    ("num.recovery.threads.per.data.dir", "0"),
    ("num.recovery.threads.per.data.dir", "5"),
    ("max.connections", "-1"),
    ("max.connections.per.ip", "-1"),
    ("max.connections.per.ip", "0"),
    ("max.connections.per.ip.overrides", "127.0.0.1"),
    ("max.connections.per.ip.overrides", "127.0.0.1:x"),
    ("producer.id.expiration.ms", "0"),
    ("log.retention.ms", "0"),
    ("log.retention.ms", "-5"),
    ("log.roll.ms", "0"),
    ("log.roll.jitter.ms", "-1"),
    ("log.retention.hours", "1"),
    ("log.retention.check.interval.ms", "1"),
    ("message.max.bytes", "-1"),
    ("log.cleanup.policy", "shred"),
    ("compression.type", "rar"),
    ("compression.zstd.level", "99"),
    ("background.threads", "25"),
    ("kbroker.fsync", "commit"),
    ("num.network.threads", "0"),
    ("num.network.threads", "7"),
)


@change
def live_settings_are_taken(s: Session) -> None:
    """Each setting for all brokers and for one: taken, described with its sources, and given up again."""
    for key, value in TAKEN.items():
        incremental(s, f"{key}: all", resource("", op(key, SET, value), kind=BROKER))
        wait_for(partial(_broker_has, s, "1", key, 3), f"{key} for all")
        describe(s, f"{key}: described after all", "1", key, kind=BROKER)
        incremental(s, f"{key}: one", resource("1", op(key, SET, value), kind=BROKER))
        wait_for(partial(_broker_has, s, "1", key, 2), f"{key} for one")
        describe(s, f"{key}: described after one", "1", key, kind=BROKER)
        incremental(s, f"{key}: one unset", resource("1", op(key, DELETE), kind=BROKER))
        incremental(s, f"{key}: all unset", resource("", op(key, DELETE), kind=BROKER))
        wait_for(partial(_broker_has_not, s, "1", key, 3), f"{key} for all to go")
        wait_for(partial(_broker_has_not, s, "1", key, 2), f"{key} for one to go")


@change
def live_settings_that_are_wrong(s: Session) -> None:
    """Values that no broker may run with, and steps that are too large to be taken at once."""
    for number, (key, value) in enumerate(WRONG):
        for name in ("", "1"):
            step = f"{number} {key}={value} for {name or 'all'}"
            incremental(s, step, resource(name, op(key, SET, value), kind=BROKER), validate_only=True)


@change
def live_settings_together(s: Session) -> None:
    """Settings that fit each other or do not, judged with what else is in force."""

    def both(step: str, *configs: tuple[str, str]) -> None:
        ops = [op(key, SET, value) for key, value in configs]
        incremental(s, step, resource("1", *ops, kind=BROKER), validate_only=True)

    both("no connections but named ones", ("max.connections.per.ip", "0"),
         ("max.connections.per.ip.overrides", "127.0.0.1:10"))  # fmt: skip
    both("buffer for one thread, threads for two", ("log.cleaner.threads", "2"),
         ("log.cleaner.dedupe.buffer.size", "2000000"))  # fmt: skip
    both("buffer for two threads", ("log.cleaner.threads", "2"), ("log.cleaner.dedupe.buffer.size", "2200000"))
    both("lags", ("log.cleaner.min.compaction.lag.ms", "10"), ("log.cleaner.max.compaction.lag.ms", "5"))
    both("first of two wrong", ("log.cleaner.threads", "9"), ("num.recovery.threads.per.data.dir", "9"))
    both("one live, one not", ("log.cleaner.threads", "2"), ("log.dirs", "/tmp"))
    incremental(s, "append", resource("1", op("max.connections.per.ip.overrides", APPEND, "::1:5"), kind=BROKER))
    incremental(s, "threads: doubled", resource("", op("log.cleaner.threads", SET, "2"), kind=BROKER))
    wait_for(partial(_broker_has, s, "1", "log.cleaner.threads", 3), "two threads")
    incremental(s, "threads: doubled again", resource("", op("log.cleaner.threads", SET, "4"), kind=BROKER))
    wait_for(lambda: _threads(s) == "4", "four threads")
    incremental(s, "threads: back at once", resource("", op("log.cleaner.threads", SET, "1"), kind=BROKER))
    incremental(s, "threads: unset at once", resource("", op("log.cleaner.threads", DELETE), kind=BROKER))
    incremental(s, "threads: halved", resource("", op("log.cleaner.threads", SET, "2"), kind=BROKER))
    wait_for(lambda: _threads(s) == "2", "two threads again")
    incremental(s, "threads: one", resource("", op("log.cleaner.threads", SET, "1"), kind=BROKER))
    wait_for(lambda: _threads(s) == "1", "one thread")
    incremental(s, "threads: unset", resource("", op("log.cleaner.threads", DELETE), kind=BROKER))
    wait_for(partial(_broker_has_not, s, "1", "log.cleaner.threads", 3), "no setting")


def _threads(s: Session) -> str:
    row = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": ["log.cleaner.threads"]}
    return str(s.quietly("DescribeConfigs", 4, resources=[row]).results[0].configs[0].value)
