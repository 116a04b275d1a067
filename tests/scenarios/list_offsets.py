"""ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, and was at some time."""

from __future__ import annotations

from typing import Any

from tests.scenarios.batches import T0, Batch
from tests.scenarios.session import Session, scenario

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -2, -1, -3, -4, -5, -6


def offsets(s: Session, step: str, topic: str, *times: int, version: int = 7, **values: Any) -> None:
    """Ask for one timestamp in partition 0 and record the answer."""
    extra = {key: values.pop(key) for key in ("current_leader_epoch", "partition_index") if key in values}
    rows = [{"partition_index": 0, "timestamp": time, **extra} for time in times]
    s.ask(step, "ListOffsets", version, replica_id=-1, topics=[{"name": topic, "partitions": rows}], **values)


@scenario
def in_each_version(s: Session) -> None:
    s.create("offsets-versions")
    s.fill("offsets-versions", Batch([(b"k", b"v")] * 3), Batch([(b"k", b"v")], timestamps=[T0 + 100]))
    for version in range(1, 12):
        offsets(s, f"v{version} latest", "offsets-versions", LATEST, version=version)
        offsets(s, f"v{version} earliest", "offsets-versions", EARLIEST, version=version)
        offsets(s, f"v{version} at a time", "offsets-versions", T0 + 50, version=version)


@scenario
def special_times(s: Session) -> None:
    """Each special time, in the version before it exists and in those that know it."""
    s.create("offsets-special")
    s.fill("offsets-special", Batch(timestamps=[T0 + 9]), Batch(timestamps=[T0 + 99]), Batch(timestamps=[T0 + 50]))
    s.create("offsets-special-empty")
    for name, time, since in (
        ("max timestamp", MAX_TIMESTAMP, 7),
        ("earliest local", EARLIEST_LOCAL, 8),
        ("latest tiered", LATEST_TIERED, 9),
        ("earliest pending upload", EARLIEST_PENDING, 11),
    ):
        offsets(s, f"{name} too early", "offsets-special", time, version=since - 1)
        offsets(s, f"{name} v{since}", "offsets-special", time, version=since)
        offsets(s, f"{name} of an empty log", "offsets-special-empty", time, version=since)
    offsets(s, "a time that is none", "offsets-special", -10, version=11)


@scenario
def at_times(s: Session) -> None:
    """The first record at or after a time, also inside a batch and inside a compressed one."""
    s.create("offsets-times")
    pairs = [(b"k", b"v")] * 3
    s.fill("offsets-times", Batch(pairs, [T0, T0 + 10, T0 + 20]), Batch(pairs, [T0 + 30, T0 + 25, T0 + 40], codec=1))
    for time in (0, -0, T0 - 1, T0, T0 + 1, T0 + 10, T0 + 20, T0 + 21, T0 + 26, T0 + 30, T0 + 40, T0 + 41, 2**62):
        if f"at {time}" not in s.answers:
            offsets(s, f"at {time}", "offsets-times", time)
    s.create("offsets-times-empty")
    offsets(s, "empty", "offsets-times-empty", T0)
    s.create("offsets-times-none")
    s.fill("offsets-times-none", Batch(timestamps=[-1]))
    offsets(s, "records without time", "offsets-times-none", T0)
    offsets(s, "max of records without time", "offsets-times-none", MAX_TIMESTAMP)


@scenario
def of_what_is_not(s: Session) -> None:
    s.create("offsets-known")
    offsets(s, "unknown topic", "offsets-never", LATEST)
    offsets(s, "unknown topic by time", "offsets-never", T0)
    offsets(s, "invalid topic", "not a name", LATEST)
    offsets(s, "unknown partition", "offsets-known", LATEST, partition_index=5)
    offsets(s, "negative partition", "offsets-known", LATEST, partition_index=-1)
    offsets(s, "a partition twice", "offsets-known", LATEST, EARLIEST)
    offsets(s, "the leader epoch", "offsets-known", LATEST, current_leader_epoch=0)
    offsets(s, "a leader epoch to come", "offsets-known", LATEST, current_leader_epoch=4)
    offsets(s, "committed", "offsets-known", LATEST, isolation_level=1)
    s.ask("nothing", "ListOffsets", 7, replica_id=-1, topics=[])


@scenario
def ends_of_epochs(s: Session) -> None:
    """What a consumer asks to find out whether its log was truncated."""
    s.create("epochs")
    s.create("epochs-empty")
    s.fill("epochs", Batch([(b"k", b"v")] * 3))

    def ask(step: str, topic: str, epoch: int, version: int = 4, partition: int = 0, current: int = -1) -> None:
        row = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
        s.ask(step, "OffsetForLeaderEpoch", version, replica_id=-1, topics=[{"topic": topic, "partitions": [row]}])

    for version in (2, 3, 4):
        row = {"partition": 0, "leader_epoch": 0}
        values = {"replica_id": -1} if version >= 3 else {}
        topics = [{"topic": "epochs", "partitions": [row]}]
        s.ask(f"v{version}", "OffsetForLeaderEpoch", version, topics=topics, **values)
    ask("an epoch to come", "epochs", 5)
    ask("no epoch", "epochs", -1)
    ask("of an empty log", "epochs-empty", 0)
    ask("of an empty log, to come", "epochs-empty", 5)
    ask("unknown topic", "epochs-never", 0)
    ask("unknown partition", "epochs", 0, partition=4)
    ask("the leader's own epoch", "epochs", 0, current=0)
    ask("a leader epoch to come", "epochs", 0, current=6)
