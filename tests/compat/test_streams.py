"""Applications of Kafka Streams, on groups of KIP-1071 and on classic ones, while they and the broker crash."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.admin import Admin, unique
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.streams_app import Ends, Feeder, Results, WordCountProcess
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for

STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
# Sessions short enough that a dead instance is noticed within a test, long enough for one that gets no processor.
SETTINGS = {
    "group.streams.min.session.timeout.ms": "2000",
    "group.streams.session.timeout.ms": "12000",
    "group.streams.min.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.num.standby.replicas": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
EXACTLY_ONCE = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": "200",
    "producer.transaction.timeout.ms": "5000",
    "producer.max.block.ms": "120000",
    "default.api.timeout.ms": "120000",
}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[KbrokerProcess]:
    """A broker that a test may kill."""
    broker = KbrokerProcess(tmp_path / "broker", SETTINGS)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def tool(broker: BrokerProcess, *args: str) -> str:
    """kafka-streams-groups.sh, which must succeed; what it printed."""
    done = run_java(STREAMS_GROUPS, "--bootstrap-server", broker.bootstrap, *args)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def topics_of(broker: BrokerProcess) -> tuple[str, str]:
    """Input and output of an application."""
    admin = Admin(broker.bootstrap)
    return admin.create_topic("words", 3), admin.create_topic("counts", 2)


def test_an_application_counts_words(own_broker: KbrokerProcess, tmp_path: Path) -> None:
    """Applications of Kafka Streams would not run with `group.protocol=streams`."""
    topics, application = topics_of(own_broker), unique("words")
    feeder = Feeder(own_broker.bootstrap, topics[0])
    feeder.feed(200)
    feeder.finish()
    settings = {"group.protocol": "streams", "num.stream.threads": "2", "commit.interval.ms": "100"}
    instance = WordCountProcess(own_broker.bootstrap, application, topics, tmp_path / "app", settings)
    try:
        Results(own_broker.bootstrap, topics[1]).wait_for(feeder.counts, 200)
    finally:
        instance.close()
    assert instance.states[-3:] == ["RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING"]


@pytest.mark.slow
def test_two_instances_count_words_and_one_is_killed(own_broker: KbrokerProcess, tmp_path: Path) -> None:
    """Words would be lost or counted twice when an instance of an application dies, or the tools could not see its
    group."""
    topics, application = topics_of(own_broker), unique("words")
    settings = {"group.protocol": "streams", "num.stream.threads": "2", **EXACTLY_ONCE}
    feeder = Feeder(own_broker.bootstrap, topics[0])
    feeder.feed(500)
    first, second = (
        WordCountProcess(
            own_broker.bootstrap,
            application,
            topics,
            tmp_path / name,
            {**settings, "application.server": f"{name}.example:7000"},
        )
        for name in "ab"
    )
    try:
        for instance in (first, second):
            instance.wait_running()
        feeder.feed(500)
        assert tool(own_broker, "--list").split() == [application]
        assert re.search(rf"{application}\s+Stable", tool(own_broker, "--list", "--state"))
        members = tool(own_broker, "--describe", "--group", application, "--members", "--verbose")
        assert len(re.findall(rf"^{application}\s", members, re.MULTILINE)) == 4, members
        offsets = tool(own_broker, "--describe", "--group", application, "--offsets")
        assert len(re.findall(rf"^{application}\s+{topics[0]}\s", offsets, re.MULTILINE)) == 3, offsets
        assert "Stable" in tool(own_broker, "--describe", "--group", application, "--state")
        first.kill()
        feeder.feed(500)
        feeder.finish()
        results = Results(own_broker.bootstrap, topics[1])
        results.wait_for(feeder.counts, 120)
    finally:
        for instance in (first, second):
            instance.close()
    wait_empty(own_broker, application)
    reset = ("--reset-offsets", "--group", application, "--input-topic", topics[0], "--to-earliest", "--execute")
    assert re.search(rf"{topics[0]}\s+0\s+0", tool(own_broker, *reset))
    assert Admin(own_broker.bootstrap).committed(application, topics[0], 3) == {0: 0, 1: 0, 2: 0}
    assert "successful" in tool(own_broker, "--delete", "--group", application)
    assert application not in tool(own_broker, "--list").split()


def wait_empty(broker: KbrokerProcess, application: str) -> None:
    """Until the killed instance's members are gone too."""
    deadline = time.monotonic() + 60
    while not re.search(rf"{application}\s+Empty", tool(broker, "--list", "--state")):
        assert time.monotonic() < deadline, "the group is not empty"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_counts_are_exact_though_the_broker_is_killed_ten_times(
    protocol: str, own_broker: KbrokerProcess, tmp_path: Path
) -> None:
    """A crash of the broker would lose words, count them twice, or show read_committed consumers an aborted count."""
    topics, application = topics_of(own_broker), unique("words")
    feeder = Feeder(own_broker.bootstrap, topics[0])
    settings = {"group.protocol": protocol, **EXACTLY_ONCE}
    instance = WordCountProcess(own_broker.bootstrap, application, topics, tmp_path / "app", settings)
    ends = Ends(own_broker.bootstrap, topics[1], 2)
    try:
        feeder.feed(200)
        instance.wait_running()
        for _ in range(10):
            feeder.feed(100)
            seen = ends.now()
            wait_for(lambda: ends.now() > seen, "the application to go on", seconds=60, every=0.1)  # noqa: B023
            own_broker.kill()
            own_broker.start()
        feeder.feed(100)
        feeder.finish()
        Results(own_broker.bootstrap, topics[1]).wait_for(feeder.counts, 180)
    finally:
        instance.close()
        ends.close()
