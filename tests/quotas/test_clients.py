"""Quotas as clients meet them: rates of real clients, and answers of a broker byte by byte.

Also of `kbroker.cluster.mutations`, `kbroker.gate.client_gate`, `kbroker.gate.enforcement`,
`kbroker.handlers.cluster.client_quotas`.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.connection import Connection
from kbroker.errors import ErrorCode
from kbroker.schemas import wire
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient
from tests.quotas.throttled import alter_quotas, consumed, fill, produced, set_quotas
from tests.share.script import ALICE, Script

TOPIC = "limited"
RATE = 500_000
MOST = 1 << 40
# Of what its quota allows in the time that it had to wait a client gets this share at least: a window is a second.
LEAST = 0.5
# What a client with that quota would take several seconds for.
MUCH = 4_000_000
PATIENCE_SECONDS = 60.0
# Bursts are short with few windows: a rate is then seen in seconds.
WINDOWS = {"quota.window.num": "3", "controller.quota.window.num": "2", "num.partitions": "1"}


@pytest.fixture(name="broker", scope="module")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("quotas"), WINDOWS)
    broker.start()
    raw.create_topic(broker.port, TOPIC, 1)
    yield broker
    broker.stop()


def metric(broker: BrokerProcess, name: str, **labels: str) -> float:
    text = urllib.request.urlopen(f"{broker.metrics_url}/metrics", timeout=60).read().decode()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith(name + "{") and all(each in line for each in wanted)
    )


def test_a_producer_keeps_to_its_quota_and_others_are_not_slowed(broker: BrokerProcess) -> None:
    """A quota would not hold, or would slow clients that have none."""
    set_quotas(broker.port, {"client-id": "slow"}, producer_byte_rate=RATE)
    slow = produced(broker.bootstrap, TOPIC, "slow", 9.0, MOST)
    labels = {"quota": "produce", "client_id": "slow"}
    assert metric(broker, "kbroker_quota_limit", **labels) == RATE
    assert metric(broker, "kbroker_quota_throttles_total", **labels) > 0 and slow.throttles > 0
    muted_seconds = metric(broker, "kbroker_quota_throttle_seconds_total", **labels)
    assert muted_seconds > 1
    # The quota is on the bytes of requests, which are a little more than the values.
    assert slow.per_second < 1.1 * RATE
    assert slow.size > LEAST * RATE * muted_seconds
    free = produced(broker.bootstrap, TOPIC, "free", PATIENCE_SECONDS, MUCH)
    assert (free.size >= MUCH, free.throttles) == (True, 0)
    assert metric(broker, "kbroker_quota_limit", client_id="free") == 0


def test_a_consumer_keeps_to_its_quota_and_others_are_not_slowed(broker: BrokerProcess) -> None:
    """A quota would not hold, or records that were read for it would be lost."""
    fill(broker.port, "read", 3_000)
    set_quotas(broker.port, {"client-id": "reader"}, consumer_byte_rate=RATE)
    reader = consumed(broker.bootstrap, "read", "reader", 9.0, MOST)
    muted_seconds = metric(broker, "kbroker_quota_throttle_seconds_total", quota="fetch", client_id="reader")
    assert muted_seconds > 1 and reader.throttles > 0
    assert LEAST * RATE * muted_seconds < reader.size < 1.1 * RATE * reader.seconds
    free = consumed(broker.bootstrap, "read", "free-reader", PATIENCE_SECONDS, MUCH)
    assert (free.size >= MUCH, free.throttles) == (True, 0)


@pytest.mark.slow
def test_rates_over_half_a_minute_are_within_a_tenth_of_the_quota_with_kafkas_windows(tmp_path: Path) -> None:
    """Bursts at the begin of Kafka's eleven windows would not be made up for."""
    broker = BrokerProcess(tmp_path, {"num.partitions": "1"})
    broker.start()
    try:
        fill(broker.port, TOPIC, 10_000)
        set_quotas(broker.port, {"user": None}, producer_byte_rate=RATE, consumer_byte_rate=RATE)
        # A whole number of spans: each begins with the burst that its quota allows.
        assert 0.9 * RATE < consumed(broker.bootstrap, TOPIC, "b", 33.0, MOST).per_second < 1.1 * RATE
        assert 0.9 * RATE < produced(broker.bootstrap, TOPIC, "a", 33.0, MOST).per_second < 1.1 * RATE
    finally:
        broker.stop()


# A Fetch 4 answer without topics: correlation id, throttle time, and their number.
EMPTY_BYTES = 12


def throttle_of(answer: bytes, at: int) -> int:
    return int(struct.unpack_from(">i", answer, at)[0])


def test_an_answer_names_the_time_for_which_its_connection_is_muted(broker: BrokerProcess) -> None:
    """A client would send into a connection that is not read, or go on as if it had no quota (KIP-219)."""
    set_quotas(broker.port, {"client-id": "hostile"}, producer_byte_rate=500)
    batch = raw.good_batch(1, b"x" * 1_600)
    try:
        with RawClient(broker.port) as client:
            begin = time.monotonic()
            answer = client.ask(raw.produce(TOPIC, 0, batch))
            throttle_ms = throttle_of(answer, len(answer) - 4)
            assert raw.produce_answer(answer)[0] == raw.NONE
            assert 300 <= throttle_ms <= 1500
            client.ask(raw.api_versions())
            assert time.monotonic() - begin >= throttle_ms / 1000
    finally:
        set_quotas(broker.port, {"client-id": "hostile"}, producer_byte_rate=None)
    with RawClient(broker.port) as client:
        answer = client.ask(raw.produce(TOPIC, 0, batch))
        assert throttle_of(answer, len(answer) - 4) == 0


def test_a_producer_that_wants_no_answers_is_muted_and_loses_nothing_when_it_leaves(broker: BrokerProcess) -> None:
    """acks=0 would be a way around the quota, or its records would be lost with the connection."""
    topic = "unanswered"
    raw.create_topic(broker.port, topic, 1)
    set_quotas(broker.port, {"client-id": "hostile"}, producer_byte_rate=1_000)
    try:
        with RawClient(broker.port) as client:
            for _ in range(3):
                client.send(raw.produce(topic, 0, raw.good_batch(1, b"x" * 1_500), acks=0))
        set_quotas(broker.port, {"client-id": "hostile"}, producer_byte_rate=1e9)
        with RawClient(broker.port) as client:
            own = count()
            # Each of these has the offset behind all before it: its own and the three.
            wait_for(
                lambda: raw.produce_answer(client.ask(raw.produce(topic, 0, raw.good_batch(1))))[1] >= next(own) + 3,
                "the records of the client that has left",
            )
    finally:
        set_quotas(broker.port, {"client-id": "hostile"}, producer_byte_rate=None)


def test_a_fetch_above_the_quota_is_empty_and_reads_the_same_again(broker: BrokerProcess) -> None:
    """A consumer would skip what was withheld, or get more than a window has room for in one answer."""
    topic = "withheld"
    raw.create_topic(broker.port, topic, 1)
    with RawClient(broker.port) as client:
        for _ in range(40):
            client.ask(raw.produce(topic, 0, raw.good_batch(1, b"x" * 1_000)))
    set_quotas(broker.port, {"client-id": "hostile"}, consumer_byte_rate=5_000)
    try:
        with RawClient(broker.port) as client:
            begin, muted_ms, empty, whole = time.monotonic(), 0, 0, b""
            while not (empty and whole):
                answer = client.ask(raw.fetch(topic, 0, 0))
                throttle_ms = throttle_of(answer, 4)
                assert time.monotonic() - begin >= muted_ms / 1000
                assert (throttle_ms > 0) == (len(answer) == EMPTY_BYTES)
                if throttle_ms:
                    empty, muted_ms = empty + 1, muted_ms + throttle_ms
                else:
                    # Asked for 40 KB: the window has room for 10.
                    assert 5_000 < len(answer) < 10_200
                    whole = answer
    finally:
        set_quotas(broker.port, {"client-id": "hostile"}, consumer_byte_rate=None)


def test_a_share_fetch_above_the_quota_mutes_its_connection_and_gives_each_record_once(broker: BrokerProcess) -> None:
    """Members of share groups would read as fast as they like; or records that were acquired and not sent would be
    locked for half a minute, and be given up after five such times."""
    host, _, port = broker.bootstrap.partition(":")
    script = Script(lambda: Connection(host, int(port), client_id="sharing"), "-quota")
    script.create_topic("t")
    script.set_group("g", share_auto_offset_reset="earliest")
    script.produce("t", *[100] * 10)
    set_quotas(broker.port, {"client-id": "sharing"}, consumer_byte_rate=1_000)
    try:
        script.join("g", ALICE, ["t"])
        offsets: list[int] = []
        begin, muted_ms, throttled, epoch = time.monotonic(), 0, 0, 0
        while throttled < 3 and len(offsets) < 1_000:
            answer = script.fetch(script.two, "g", ALICE, epoch, ["t"])
            assert time.monotonic() - begin >= muted_ms / 1000
            muted_ms += answer.throttle_time_ms
            throttled += answer.throttle_time_ms > 0
            epoch += 1
            for partition in answer.responses[0].partitions if answer.responses else ():
                for each in partition.acquired_records:
                    assert each.delivery_count == 1
                    offsets += range(each.first_offset, each.last_offset + 1)
        assert offsets == list(range(len(offsets)))
        assert throttled == 3
    finally:
        set_quotas(broker.port, {"client-id": "sharing"}, consumer_byte_rate=None)
        script.close()


def test_a_share_of_the_loops_time_mutes_any_request_for_a_window_at_most(broker: BrokerProcess) -> None:
    """Requests that move no bytes, remembered answers among them, could take all of a broker."""
    set_quotas(broker.port, {"user": "ANONYMOUS"}, request_percentage=0.001)
    # Metadata 3 of one topic.
    ask = raw.request(raw.METADATA, 3, struct.pack(">i", 1) + raw.string(TOPIC))
    try:
        with RawClient(broker.port) as client:
            throttles = []
            begin = time.monotonic()
            for _ in range(3):
                throttles.append(throttle_of(client.ask(ask), 4))
            assert throttles[-1] == 1000
            assert time.monotonic() - begin >= 1.0
    finally:
        set_quotas(broker.port, {"user": "ANONYMOUS"}, request_percentage=None)
    with RawClient(broker.port) as client:
        assert [throttle_of(client.ask(ask), 4) for _ in range(3)] == [0, 0, 0]


def test_the_command_shows_sets_and_removes_quotas_that_outlive_a_restart(tmp_path: Path) -> None:
    """Quotas would be gone with the broker, or could not be seen."""
    broker = BrokerProcess(tmp_path)

    def quotas(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kbroker.cli", "quotas", *arguments, "-b", broker.bootstrap]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    broker.start()
    try:
        said = quotas(
            "set", "--user", "alice", "--client-id-default", "producer_byte_rate=1024", "request_percentage=50"
        )
        assert "producer_byte_rate=1024: set for user alice, client-id <default>" in said.stdout
        assert quotas("set", "--ip", "10.0.0.1", "connection_creation_rate=5").returncode == 0
        refused = quotas("set", "--ip", "10.0.0.1", "producer_byte_rate=5")
        assert refused.returncode == 1
        assert refused.stderr == "kbroker: INVALID_REQUEST: Invalid configuration key producer_byte_rate\n"
        broker.restart()
        found = json.loads(quotas("list", "--json").stdout)
        assert found == [
            {
                "entity": {"client-id": None, "user": "alice"},
                "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 50.0},
            },
            {"entity": {"ip": "10.0.0.1"}, "quotas": {"connection_creation_rate": 5.0}},
        ]
        removed = quotas("remove", "--user", "alice", "--client-id-default", "request_percentage")
        assert removed.returncode == 0
        listed = quotas("list", "--user", "alice").stdout
        assert "producer_byte_rate" in listed and "request_percentage" not in listed
        again = quotas("remove", "--user", "alice", "--client-id-default", "request_percentage")
        assert "has no quota request_percentage" in again.stderr
    finally:
        broker.stop()


def names_and_errors(answer: wire.CreateTopicsResponse) -> dict[str, tuple[int, str | None]]:
    return {topic.name: (topic.error_code, topic.error_message) for topic in answer.topics}


def test_changes_of_topics_are_counted_in_partitions(broker: BrokerProcess) -> None:
    """A client could make topics as fast as it likes, or would not know why it may not (KIP-599)."""
    request = wire.CreateTopicsRequest

    def topics(*names: str) -> wire.CreateTopicsRequest:
        rows = [request.CreatableTopic(name=name, num_partitions=6, replication_factor=1) for name in names]
        return request(topics=rows, timeout_ms=10_000)

    def paid_after(answer: Any) -> float:
        """Seconds from the first request on, after which there are 0 again: however long this process was held up."""
        return time.monotonic() - begin + answer.throttle_time_ms / 1000

    # A burst of 10 partitions.
    set_quotas(broker.port, {"client-id": "maker"}, controller_mutation_rate=5.0)
    exceeded = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
    try:
        with Connection("127.0.0.1", broker.port, client_id="maker") as connection:
            begin = time.monotonic()
            answer = connection.send(topics("first", "second", "third"), version=7)
            assert names_and_errors(answer) == {"first": (0, None), "second": (0, None), "third": exceeded}
            assert answer.throttle_time_ms <= 410 and paid_after(answer) > 0.39
            # The connection was muted until there were 0 again.
            deleted = wire.DeleteTopicsRequest(topic_names=["first"], timeout_ms=10_000)
            answer = connection.send(deleted, version=4)
            assert answer.responses[0].error_code == 0
            assert time.monotonic() - begin > 0.39
            assert answer.throttle_time_ms <= 1_210 and paid_after(answer) > 1.59
            answer = connection.send(topics("fourth", "fifth"), version=5)
            assert {code for code, _ in names_and_errors(answer).values()} == {0}
            assert time.monotonic() - begin > 1.59
            assert answer.throttle_time_ms <= 2_410 and paid_after(answer) > 3.99
    finally:
        set_quotas(broker.port, {"client-id": "maker"}, controller_mutation_rate=None)


def test_connections_of_an_address_come_no_faster_than_its_quota(broker: BrokerProcess) -> None:
    """One host could keep the broker busy with connections (KIP-612)."""
    with Connection("127.0.0.1", broker.port, client_id="quota-admin") as admin:
        alter_quotas(admin, {"ip": "127.0.0.1"}, connection_creation_rate=4.0)
        try:
            # Eight may come at once, and four more in each second that this process is held up meanwhile.
            begin = asked = time.monotonic()
            served, refused = 0, False
            while not refused:
                asked = time.monotonic()
                with RawClient(broker.port) as client:
                    refused = client.closed_after(raw.api_versions())
                served += not refused
            assert 8 <= served <= 8 + 4 * (asked - begin) + 1
            assert time.monotonic() - asked > 0.1
            assert metric(broker, "kbroker_connections_paced_total", verdict="refused") == 1
        finally:
            alter_quotas(admin, {"ip": "127.0.0.1"}, connection_creation_rate=None)
    with RawClient(broker.port) as client:
        client.ask(raw.api_versions())
