"""The groups of a soak, and the kinds of their members."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.compat.tooling import ROOT, TOOLS, compiled, java_command

SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
REBALANCE_MS = 10_000
LOCK_MS = 10_000
PARTITIONS = 12

BROKER_SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.min.session.timeout.ms": str(SESSION_MS),
    "group.share.session.timeout.ms": str(SESSION_MS),
    "group.share.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    # Members die with records that they hold: none may be given up for that.
    "group.share.delivery.count.limit": "10",
}

Command = Callable[[str, str, str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class MemberKind:
    """How a member is run: bootstrap, topic and group to a command line; `weight` is how often it is chosen."""

    name: str
    command: Command
    weight: int = 1


@dataclass(frozen=True, slots=True)
class SoakedGroup:
    """A group, its topic of the same name, and what its members may be."""

    name: str
    kinds: tuple[MemberKind, ...]
    is_share: bool = False


def _python(name: str, kind: str, weight: int = 1, **settings: str | int) -> MemberKind:
    words = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    run = [sys.executable, "-m", "tests.scenarios.soak.member", kind]
    return MemberKind(name, lambda bootstrap, topic, group: [*run, bootstrap, topic, group, *words], weight)


@cache
def _classes() -> Path:
    return compiled(Path(__file__).parent / "SoakMember.java")


def _java(name: str, protocol: str, **settings: str | int) -> MemberKind:
    words = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]

    def command(bootstrap: str, topic: str, group: str) -> Sequence[str]:
        return java_command("SoakMember", bootstrap, topic, group, protocol, *words, classes=_classes(), heap="96m")

    return MemberKind(name, command)


_RDKAFKA = {"session__timeout__ms": SESSION_MS, "heartbeat__interval__ms": HEARTBEAT_MS}
_RDKAFKA_POLL = {"max__poll__interval__ms": REBALANCE_MS}
_JAVA_POLL = {"max__poll__interval__ms": REBALANCE_MS}
_UNDERSCORES = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
_ASSIGNORS = "org.apache.kafka.clients.consumer"

CONFLUENT_RANGE = _python(
    "confluent", "confluent", 4, **_RDKAFKA, **_RDKAFKA_POLL, partition__assignment__strategy="range"
)
CONFLUENT_STICKY = _python(
    "confluent-sticky",
    "confluent",
    4,
    **_RDKAFKA,
    **_RDKAFKA_POLL,
    partition__assignment__strategy="cooperative-sticky",
)
CONFLUENT_NEW = _python("confluent-consumer", "confluent", 4, **_RDKAFKA_POLL, group__protocol="consumer")
CONFLUENT_SHARE = _python("confluent-share", "confluent_share", 4)
KAFKA_PYTHON = _python("kafka-python", "kafka_python", 2, **_UNDERSCORES, max_poll_interval_ms=REBALANCE_MS)
AIOKAFKA = _python("aiokafka", "aiokafka", 2, **_UNDERSCORES, rebalance_timeout_ms=REBALANCE_MS)
JAVA_RANGE = _java(
    "java", "classic", **_RDKAFKA, **_JAVA_POLL, partition__assignment__strategy=f"{_ASSIGNORS}.RangeAssignor"
)
JAVA_STICKY = _java(
    "java-sticky",
    "classic",
    **_RDKAFKA,
    **_JAVA_POLL,
    partition__assignment__strategy=f"{_ASSIGNORS}.CooperativeStickyAssignor",
)
JAVA_NEW = _java("java-consumer", "consumer", **_JAVA_POLL, group__protocol="consumer")
JAVA_SHARE = _java("java-share", "share")

GROUPS = (
    SoakedGroup("soak-classic", (CONFLUENT_RANGE, KAFKA_PYTHON, AIOKAFKA, JAVA_RANGE)),
    SoakedGroup("soak-cooperative", (CONFLUENT_STICKY, JAVA_STICKY)),
    SoakedGroup("soak-consumer", (CONFLUENT_NEW, JAVA_NEW)),
    SoakedGroup("soak-migrating", (CONFLUENT_RANGE, CONFLUENT_NEW, JAVA_RANGE, JAVA_NEW)),
    SoakedGroup("soak-share", (CONFLUENT_SHARE, JAVA_SHARE), is_share=True),
)

__all__ = [
    "BROKER_SETTINGS",
    "GROUPS",
    "LOCK_MS",
    "PARTITIONS",
    "REBALANCE_MS",
    "ROOT",
    "SESSION_MS",
    "TOOLS",
    "SoakedGroup",
]
