"""Groups, clients, transactions and settings over HTTP.

Also of `kbroker.console.group_lag`, `kbroker.console.group_lines`, `kbroker.console.group_members`,
`kbroker.console.groups`.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kbroker import __version__
from kbroker.handlers.client_software import software_in
from kbroker.schemas import wire
from tests.broker_process import BrokerProcess
from tests.console.group_pages import joined
from tests.console.viewer import STRANGE, Viewer


def test_groups_of_both_protocols_say_who_has_what_and_why(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """Why a group is behind, and why it rebalanced, could not be seen."""
    topic = console_broker.create_topic("grouped", 2)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for _ in range(5):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(30) == 0
    for protocol in ("classic", "consumer"):
        consumer = joined(console_broker, f"readers {protocol}", topic, protocol)
        # A member of the newer protocol says with its next heartbeat that it has what it was given.
        told = viewer.wait(
            "group", lambda told: (told["state"], told["lag"]) == ("Stable", 3), id=f"readers {protocol}"
        )
        assert (told["group_type"], told["state"], told["member_count"]) == (protocol, "Stable", 1)
        (member,) = told["members"]
        assert member["client_id"] == f"of {protocol}" and member["subscribed"] == [topic]
        assert member["assigned"] == [{"topic": topic, "partitions": [0, 1]}]
        line, never = told["offsets"]
        assert (line["committed"], line["end"], line["lag"], line["owner"]) == (2, 5, 3, f"of {protocol}")
        assert (never["partition"], never["committed"], never["lag"]) == (1, None, 0)
        assert told["last_rebalance"]["reason"] and told["last_rebalance"]["at_ms"] <= told["now_ms"]
        page = viewer.wait("groups", lambda page: page["rows"], q=f"readers {protocol}")
        assert [(row["group_type"], row["protocol_type"]) for row in page["rows"]] == [(protocol, "consumer")]
        consumer.close()
    assert viewer.refused("group", id="none") == (404, "there is no group none")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_that_were_never_committed_count_as_lag(
    console_broker: BrokerProcess, viewer: Viewer, protocol: str
) -> None:
    """A group whose consumer of one partition never gets anywhere would look as if it had read everything."""
    topic = console_broker.create_topic(f"uncommitted-{protocol}", 3)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for index in range(7):
        producer.produce(topic, b"x", partition=0 if index < 3 else 2)
    assert producer.flush(30) == 0
    consumer = joined(console_broker, f"stuck {protocol}", topic, protocol)
    told = viewer.wait("group", lambda told: told["lag"] == 5, id=f"stuck {protocol}")
    assert [(row["committed"], row["lag"]) for row in told["offsets"]] == [(2, 1), (None, 0), (None, 4)]
    page = viewer.wait("groups", lambda page: page["rows"] and page["rows"][0]["lag"] == 5, q=f"stuck {protocol}")
    assert page["matching"] == 1
    seen = viewer.wait(
        "topic",
        lambda seen: seen["appended"] == 7 and seen["consumers"] and seen["consumers"][0]["lag"] == 5,
        name=topic,
    )
    (line,) = seen["consumers"]
    assert (line["group_id"], line["member_count"], line["partition_count"]) == (f"stuck {protocol}", 1, 3)
    assert seen["appended"] == 7
    consumer.close()


def test_partitions_that_a_program_assigns_to_itself_are_the_only_ones_that_count(
    console_broker: BrokerProcess, viewer: Viewer
) -> None:
    """A program that reads one partition of many would seem to be behind on all others."""
    topic = console_broker.create_topic("assigned", 2)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for index in range(4):
        producer.produce(topic, b"x", partition=index % 2)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": console_broker.bootstrap, "group.id": "simple"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    told = viewer.wait("group", lambda told: told["lag"] == 1, id="simple")
    assert [row["partition"] for row in told["offsets"]] == [0]
    consumer.close()


def test_clients_are_known_by_their_software_and_what_they_ask(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """Who loads the broker, and who runs an old library, could not be seen."""
    producer = Producer({"bootstrap.servers": console_broker.bootstrap, "client.id": STRANGE})
    producer.produce("plain", b"x")
    assert producer.flush(30) == 0
    told = viewer.wait("clients", lambda told: told["page"]["rows"], q="<IMG", sort="-request_count")
    row = told["page"]["rows"][0]
    assert row["client_id"] == STRANGE and "rdkafka" in row["software"]
    assert row["request_count"] >= 2 and row["bytes_in"] > 50 and row["bytes_out"] > 50
    del producer


def test_what_a_client_says_of_itself_is_read_with_care() -> None:
    """A client with odd bytes would make the page fail for all."""
    said = wire.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    body = wire.ApiVersionsRequest.program(3).encode(said)
    assert software_in(3, body) == ("x", "1")
    assert software_in(0, b"") is None
    assert software_in(3, body[:2]) is None


def test_transactions_and_what_they_hold_are_listed(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """Why readers of committed records stand still could not be seen."""
    producer = Producer({"bootstrap.servers": console_broker.bootstrap, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("plain", b"x", partition=3)
    assert producer.flush(30) == 0
    told = viewer.wait("transactions", lambda told: len(told["holders"]) == 1, q="open")
    (row,) = told["page"]["rows"]
    assert (row["state"], row["partitions"]) == ("Ongoing", [{"topic": "plain", "partitions": [3]}])
    assert [(each["topic"], each["partition"], each["transactional_id"]) for each in told["holders"]] == [
        ("plain", 3, "open")
    ]
    try:
        producer.abort_transaction(30)
    except KafkaException as error:  # pragma: no cover
        raise AssertionError(error) from error


def test_settings_say_where_they_come_from(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """A person would look for a value in files that do not have it."""
    page = viewer.ask("settings", q="num.io.threads", show="changed")
    (row,) = page["rows"]
    assert (row["value"], row["default"], row["is_default"]) == ("3", "8", False)
    assert row["source"] == "set at the start" and "--override" in row["origin"]
    assert viewer.ask("settings", q="password")["matching"] > 0
    assert all(row["value"] is None for row in viewer.ask("settings", q="ssl.keystore.password")["rows"])
    assert viewer.ask("overview")["version"] == __version__
