"""The commands against a running broker: this one, or the Kafka at KBROKER_TEST_BOOTSTRAP.

They speak the protocol only, so the same tests pass on Apache Kafka.

Also of `kbroker.cli.groups.group_offsets`, `kbroker.cli.groups.groups`, `kbroker.cli.topics.topics`,
`kbroker.cli.cluster.quotas`, `kbroker.cli.records.transactions`, `kbroker.cli.groups.share`,
`kbroker.cli.groups.streams`, `kbroker.cli.topics.delete_records`, `kbroker.cli.places`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.broker_process import BrokerProcess

Kbroker = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("KBROKER_TEST_BOOTSTRAP")
    if given:
        return given
    broker: BrokerProcess = request.getfixturevalue("module_broker")
    return broker.bootstrap


@pytest.fixture
def kbroker(bootstrap: str) -> Kbroker:
    """Runs a command; fails the test when it ends with another status than expected."""

    def run(*arguments: str, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kbroker.cli", *arguments, "-b", bootstrap]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == status, (done.stdout, done.stderr)
        return done

    return run


@pytest.fixture
def topic(kbroker: Kbroker) -> str:
    """A new topic with three partitions."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    kbroker("topics", "create", name, "-p", "3")
    return name


def load(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_topics_are_created_described_and_deleted(kbroker: Kbroker) -> None:
    """Topics could not be managed without other tools."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    kbroker("topics", "create", name, "-p", "2", "-c", "segment.ms=5000", "--validate-only")
    kbroker("topics", "create", name, "-p", "2", "-c", "segment.ms=5000")
    assert {"name": name, "partitions": 2, "replication_factor": 1} in load(kbroker("topics", "list", "--json"))
    (described,) = load(kbroker("topics", "describe", name, "--json"))
    assert described["configs"] == {"segment.ms": "5000"}
    assert len(described["id"]) == 22
    assert [(p["partition"], p["start_offset"], p["end_offset"]) for p in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert "segment.ms=5000" in kbroker("topics", "describe", name).stdout
    kbroker("topics", "alter", name, "-p", "4")
    assert len(load(kbroker("topics", "describe", name, "--json"))[0]["partitions"]) == 4
    kbroker("topics", "delete", name)
    assert name not in kbroker("topics", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create", "{topic}"], "TOPIC_ALREADY_EXISTS: Topic '{topic}' already exists."),
        (["create", "a b"], "INVALID_TOPIC_EXCEPTION: Topic name is invalid: 'a b' contains one or more characters"),
        (["create", "{topic}-new", "-c", "nothing=1"], "INVALID_CONFIG: Unknown topic config name: nothing"),
        (["create", "{topic}-new", "-c", "segment.bytes=1"], "Value must be at least 1048576"),
        (
            ["alter", "{topic}", "-p", "2"],
            "INVALID_PARTITIONS: The topic {topic} currently has 3 partition(s); 2 would",
        ),
        (["describe", "{topic}-none"], "{topic}-none: UNKNOWN_TOPIC_OR_PARTITION"),
        (["delete", "{topic}-none"], "{topic}-none: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_refusal_tells_the_brokers_reason(kbroker: Kbroker, topic: str, arguments: list[str], told: str) -> None:
    """The user would learn that it failed, but not why."""
    done = kbroker("topics", *(argument.format(topic=topic) for argument in arguments), status=1)
    assert done.stderr.startswith("kbroker: ")
    assert told.format(topic=topic) in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_is_there_already_may_be_ignored(kbroker: Kbroker, topic: str) -> None:
    """A script could not be run twice."""
    kbroker("topics", "create", topic, "--if-not-exists")
    kbroker("topics", "delete", f"{topic}-none", "--if-exists")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back(kbroker: Kbroker, topic: str, codec: str) -> None:
    """What was produced could not be read."""
    lines = "".join(f"key-{n % 7}|value {n}\n" for n in range(200))
    assert load(kbroker("produce", topic, "-K", "|", "-z", codec, "--json", stdin=lines))["delivered"] == 200
    done = kbroker("consume", topic, "--from-beginning", "-e", "--key-separator", "|")
    assert sorted(done.stdout.splitlines()) == sorted(lines.splitlines())


def test_keys_headers_and_nulls_come_back(kbroker: Kbroker, topic: str) -> None:
    """Headers or tombstones would be lost on the way."""
    record = {"key": "k", "value": None, "headers": {"h": "1"}, "partition": 2, "timestamp": 1700000000000}
    kbroker("produce", topic, "--format", "json", stdin=json.dumps(record) + "\n")
    done = kbroker("consume", topic, "-p", "2", "-o", "-1", "-n", "1", "--json")
    assert load(done) == record | {"topic": topic, "offset": 0}


def test_offsets_choose_where_reading_starts(kbroker: Kbroker, topic: str) -> None:
    """One record among many could not be looked at."""
    kbroker("produce", topic, "-p", "1", stdin="".join(f"{n}\n" for n in range(10)))
    assert kbroker("consume", topic, "-p", "1", "-o", "7", "-n", "2", "-f", "%p:%o:%s ").stdout == "1:7:7 1:8:8 "
    assert kbroker("consume", topic, "-p", "1", "-o", "-1", "-e").stdout == "9\n"
    assert "there is no partition 9" in kbroker("consume", topic, "-p", "9", "-e", status=1).stderr


def test_reading_starts_at_a_time(kbroker: Kbroker, topic: str) -> None:
    """What came since an incident could be read only by guessing offsets."""
    kbroker("topics", "alter", topic, "-c", "retention.ms=-1")
    kbroker("produce", topic, "--format", "json", stdin=timed(10, 20, 30) + timed(15, 25, partition=2))
    read = ("consume", topic, "-e", "--from-time")
    assert sorted(kbroker(*read, "2024-01-01T00:00:20Z").stdout.split()) == ["20", "25", "30"]
    assert kbroker(*read, "2024-01-01T00:00:20Z", "-p", "2").stdout == "25\n"
    assert kbroker(*read, "2100-01-01").stdout == ""
    assert "do not go with --group" in kbroker(*read, "2100-01-01", "-g", "g", status=2).stderr
    assert "give one of" in kbroker(*read, "2100-01-01", "-o", "1", status=2).stderr


def test_failures_to_produce_and_consume_are_told(kbroker: Kbroker, topic: str) -> None:
    """A script would believe that its records were taken."""
    assert "INVALID_TOPIC_EXCEPTION" in kbroker("produce", "no such", stdin="x\n", status=1).stderr
    assert "Unknown partition" in kbroker("produce", topic, "-p", "9", stdin="x\n", status=1).stderr
    assert "UNKNOWN_TOPIC_OR_PARTITION" in kbroker("consume", f"{topic}-none", "-e", status=1).stderr
    assert (
        "MESSAGE_TOO_LARGE"
        in kbroker("produce", topic, "-X", "message.max.bytes=3000000", stdin="x" * 2_000_000 + "\n", status=1).stderr
    )


def test_groups_are_described_moved_and_deleted(kbroker: Kbroker, topic: str) -> None:
    """A group's lag could not be seen, nor its position changed."""
    group = f"group-{topic}"
    kbroker("produce", topic, "-p", "0", stdin="".join(f"{n}\n" for n in range(10)))
    assert kbroker("consume", topic, "-g", group, "--from-beginning", "-n", "4").stdout == "0\n1\n2\n3\n"
    assert group in {row["group"] for row in load(kbroker("groups", "list", "--json"))}
    assert group in kbroker("groups", "list").stdout
    (described,) = load(kbroker("groups", "describe", group, "--json"))
    assert (described["state"], described["members"]) == ("empty", [])
    first = next(p for p in described["partitions"] if p["partition"] == 0)
    assert (first["committed_offset"], first["end_offset"], first["lag"]) == (4, 10, 6)
    assert topic in kbroker("groups", "describe", group).stdout

    def reset(*arguments: str) -> int:
        done = load(kbroker("groups", "reset-offsets", group, "-t", f"{topic}:0", "--json", *arguments))
        return int(done["partitions"][0]["new_offset"])

    assert reset("--to-earliest") == 0
    assert load(kbroker("groups", "describe", group, "--json"))[0]["partitions"][0]["committed_offset"] == 4
    assert reset("--to-latest") == 10
    assert reset("--to-offset", "99") == 10
    assert reset("--to-datetime", "2000-01-01") == 0
    assert reset("--to-datetime", "2100-01-01") == 10
    assert reset("--shift-by", "-3", "--execute") == 1
    assert kbroker("consume", topic, "-g", group, "-n", "2").stdout == "1\n2\n"
    kbroker("groups", "delete", group)
    assert group not in kbroker("groups", "list").stdout
    for command in ("describe", "delete"):
        assert "GROUP_ID_NOT_FOUND" in kbroker("groups", command, group, status=1).stderr


def starts_of(kbroker: Kbroker, topic: str) -> list[int]:
    (described,) = load(kbroker("topics", "describe", topic, "--json"))
    return [row["start_offset"] for row in described["partitions"]]


def timed(*seconds: int, partition: int = 0) -> str:
    """A line for each record, written at this second of 2024 in UTC."""
    rows = [{"value": str(n), "partition": partition, "timestamp": (1704067200 + n) * 1000} for n in seconds]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_old_records_are_deleted_once_the_plan_was_seen(kbroker: Kbroker, topic: str) -> None:
    """Records would be gone by a slip, or only with their topic."""
    kbroker("topics", "alter", topic, "-c", "retention.ms=-1")
    kbroker("produce", topic, "--format", "json", stdin=timed(*range(10)) + timed(20, 30, partition=2))
    delete = ("topics", "delete-records", topic)
    plan = kbroker(*delete, "--before-time", "2024-01-01T00:00:25Z").stdout
    assert "nothing changed: add --execute" in plan
    assert starts_of(kbroker, topic) == [0, 0, 0]
    assert "no record is before that" in kbroker(*delete, "--before-time", "2024-01-01T00:00:00Z").stdout
    assert "nothing changed" not in kbroker(*delete, "--before-time", "2024-01-01T00:00:25Z", "--execute").stdout
    assert starts_of(kbroker, topic) == [10, 0, 1]
    assert kbroker("consume", topic, "--from-beginning", "-e").stdout == "30\n"
    kbroker("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    one = (*delete[:2], f"{topic}:0", "--json")
    done = load(kbroker(*one, "--before-offset", "12", "--execute"))
    assert done["executed"] and done["partitions"] == [
        {"topic": topic, "partition": 0, "start_offset": 10, "end_offset": 13, "new_start_offset": 12}
        | {"deleted_offsets": 2}
    ]
    assert load(kbroker(*one, "--before-offset", "3", "--execute"))["partitions"][0]["new_start_offset"] == 12
    kbroker(*delete, "--all", "--execute")
    assert starts_of(kbroker, topic) == [13, 0, 2]


def test_records_that_cannot_be_deleted_are_named_with_the_reason(kbroker: Kbroker, topic: str) -> None:
    """A mistyped offset would empty a topic, or a bare POLICY_VIOLATION would be all that is said."""
    kbroker("produce", topic, "-p", "0", stdin="a\nb\n")
    delete = ("topics", "delete-records")
    said = kbroker(*delete, f"{topic}:0", "--before-offset", "3", "--execute", status=1).stderr
    assert f"{topic}-0: offset 3 is behind the end, which is 2" in said
    assert "there is no partition 9" in kbroker(*delete, f"{topic}:9", "--all", status=1).stderr
    assert "must be topic or topic:0,1" in kbroker(*delete, f"{topic}:x", "--all", status=2).stderr
    assert "UNKNOWN_TOPIC_OR_PARTITION" in kbroker(*delete, f"{topic}-none", "--all", status=1).stderr
    kbroker("topics", "alter", topic, "-c", "cleanup.policy=compact")
    done = kbroker(*delete, topic, "--all", "--execute", status=1)
    assert f"{topic}-0: POLICY_VIOLATION: its cleanup.policy does not let records be deleted" in done.stderr
    assert starts_of(kbroker, topic) == [0, 0, 0]
