"""Fetch against a running broker: offsets, limits, waiting and waking, epochs, and the life of sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.handlers.records.fetch import MANY_PARTITIONS
from tests.broker.client import Batch, Client, fetch_values, open_connections, until, until_waiting
from tests.conftest import BrokerProcess, StartBroker
from tests.handlers.aged import Aged, aged
from tests.scenarios.batches import summary

__all__ = ["aged"]

FIRST_WITH_TOPIC_IDS = 13
ANY_LONG_MS = 300_000
OUT_OF_RANGE, UNKNOWN_TOPIC, FENCED_EPOCH, UNKNOWN_EPOCH, UNKNOWN_TOPIC_ID, OTHER_TOPIC_ID = 1, 3, 74, 75, 100, 103
NO_SUCH_SESSION, WRONG_SESSION_EPOCH, SESSION_OF_OTHER_KIND = 70, 71, 106
NEVER = [(0, UNKNOWN_TOPIC, 0)]
ONE = len(Batch().encoded())


def row(partition: int = 0, offset: int = 0, limit: int = 1 << 20, **values: Any) -> dict[str, Any]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": limit, **values}


def topic(name: str | bytes, *rows: dict[str, Any]) -> dict[str, Any]:
    return {**({"topic_id": name} if isinstance(name, bytes) else {"topic": name}), "partitions": list(rows or [row()])}


def request(*topics: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 50 << 20, "topics": list(topics), **values}


def ask(client: Client, *topics: dict[str, Any], version: int = 11, **values: Any) -> Any:
    return client.ask("Fetch", version, request(*topics, **values))


def parts(answer: Any) -> list[tuple[int, int, int]]:
    """(partition, error, batches) of an answer, in its order."""
    return [
        (part.partition_index, part.error_code, len(summary(part.records)))
        for each in answer.responses
        for part in each.partitions
    ]


@pytest.fixture(name="client")
def _client(module_broker: BrokerProcess) -> Iterator[Client]:
    with Client(module_broker.port) as client:
        yield client


@pytest.mark.parametrize("version", range(4, 19))
def test_each_version_reads_what_was_written(client: Client, version: int) -> None:
    """Clients of some age could not consume."""
    name = f"versions-{version}"
    topic_id = client.create(name)
    batches = [Batch([(b"a", b"1"), (b"b", None)]), Batch([(None, b"x" * 5000)])]
    client.write(name, *batches)
    asked = topic_id if version >= FIRST_WITH_TOPIC_IDS else name
    answer = ask(client, topic(asked), version=version)
    (part,) = answer.responses[0].partitions
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 3, 3)
    assert part.log_start_offset == (0 if version >= 5 else -1)
    assert bytes(answer.responses[0].topic_id) == (topic_id if version >= FIRST_WITH_TOPIC_IDS else bytes(16))
    found = summary(part.records)
    assert [each["base_offset"] for each in found] == [0, 2]
    assert all(each["crc_is_right"] for each in found)
    # Only offset and leader epoch, which the checksum does not cover, are the broker's own.
    data = bytes(part.records)
    assert data[16:66] == batches[0].encoded()[16:66]
    assert len(data) == sum(len(each.encoded()) for each in batches)


def test_offsets_within_and_outside_the_log(client: Client) -> None:
    """A consumer would be set back, skip records or loop."""
    client.create("offsets")
    client.write("offsets", *[Batch([(b"k", b"v")] * 3) for _ in range(3)])
    for offset, first in ((0, 0), (1, 0), (3, 3), (5, 3), (8, 6)):
        assert summary(client.fetch("offsets", offset=offset).records)[0]["base_offset"] == first
    assert client.fetch("offsets", offset=9).error_code == 0
    for offset in (10, -1, 2**62):
        part = client.fetch("offsets", offset=offset, wait_ms=ANY_LONG_MS)
        assert (part.error_code, part.high_watermark) == (OUT_OF_RANGE, -1)


def test_what_is_not_there_is_told_at_once(client: Client) -> None:
    """A consumer of a topic that is gone would wait and wait."""
    topic_id = client.create("known")
    client.write("known")
    wait = {"max_wait_ms": ANY_LONG_MS, "min_bytes": 1 << 20}
    assert parts(ask(client, topic("never"), **wait)) == [(0, UNKNOWN_TOPIC, 0)]
    assert parts(ask(client, topic("known", row(7)), topic("never"), **wait)) == [(7, UNKNOWN_TOPIC, 0), *NEVER]
    assert parts(ask(client, topic(b"\1" * 16), version=13, **wait)) == [(0, UNKNOWN_TOPIC_ID, 0)]
    assert parts(ask(client, topic(topic_id, row(7)), version=13, **wait)) == [(7, UNKNOWN_TOPIC, 0)]
    assert parts(ask(client, **wait)) == []


def test_what_is_not_there_does_not_keep_a_fetch_from_waiting(module_broker: BrokerProcess, client: Client) -> None:
    """A consumer with one deleted topic among others would ask in a loop, as fast as it can."""
    client.create("waited-for")
    with Client(module_broker.port) as reader:
        both = [topic("waited-for"), topic("never")]
        reader.send("Fetch", 11, request(*both, max_wait_ms=ANY_LONG_MS, min_bytes=1))
        until_waiting(module_broker.metrics_url)
        client.write("waited-for")
        assert parts(reader.answer("Fetch", 11)) == [(0, 0, 1), *NEVER]


# Limits


def test_limits_hold_after_the_first_batch(client: Client) -> None:
    """A batch larger than a limit would never be read, or an answer would outgrow the client's memory."""
    client.create("limits", 3)
    for partition in range(3):
        client.write("limits", *[Batch()] * 4, partition=partition)

    def sizes(*rows: dict[str, Any], max_bytes: int = 50 << 20) -> list[int]:
        answer = ask(client, topic("limits", *rows), max_bytes=max_bytes)
        return [len(part.records) for part in answer.responses[0].partitions]

    assert sizes(row(0), max_bytes=1) == [ONE]
    assert sizes(row(0), max_bytes=0) == [ONE]
    assert sizes(row(0, limit=1), row(1, limit=1)) == [ONE, 0]
    assert sizes(row(0, limit=0)) == [ONE]
    assert sizes(row(0, limit=2 * ONE)) == [2 * ONE]
    assert sizes(row(0, limit=2 * ONE + 9)) == [2 * ONE + 9]
    assert sizes(row(0), row(1), row(2), max_bytes=5 * ONE) == [4 * ONE, ONE, 0]
    assert sizes(row(2), row(0), row(1), max_bytes=4 * ONE) == [4 * ONE, 0, 0]
    # A partition without data does not use up the right to a first batch.
    assert sizes(row(0, offset=4), row(1, limit=1), max_bytes=1) == [0, ONE]


def test_fifty_partitions_in_one_fetch(client: Client) -> None:
    """A consumer of many partitions would miss some, or read one's records as another's."""
    client.create("fifty", 50)
    for partition in range(50):
        client.write("fifty", *[Batch([(b"k", b"%d" % partition * 200)])] * (1 + partition % 3), partition=partition)
    answer = ask(client, topic("fifty", *[row(partition) for partition in range(50)]), min_bytes=1)
    assert parts(answer) == [(partition, 0, 1 + partition % 3) for partition in range(50)]
    for part in answer.responses[0].partitions:
        assert b"%d" % part.partition_index * 200 in bytes(part.records)


def test_a_partition_named_twice_is_read_once(client: Client) -> None:
    """A client's mistake would double what it reads."""
    client.create("twice", 2)
    client.write("twice", Batch(), Batch())
    answer = ask(client, topic("twice", row(0), row(1), row(0, 1)))
    assert [len(part.records) for part in answer.responses[0].partitions] == [ONE, 0]


def test_an_isolation_level_that_is_none_is_refused(client: Client) -> None:
    """A client with a wrong setting would read on without a word."""
    client.create("isolation")
    assert ask(client, topic("isolation"), isolation_level=7).error_code == -1


@pytest.mark.parametrize("count", [3, MANY_PARTITIONS + 1])
def test_an_isolation_level_that_is_none_counts_where_something_is_read(client: Client, count: int) -> None:
    """A client that may see nothing, or names what is not there, would be told of the broker's fault, and not of its
    own; a session would be kept for an answer that has none."""
    name = f"no-level-{count}"
    client.create(name, 1)
    missing = [row(partition) for partition in range(1, count)]
    answer = ask(client, topic(name, *missing), isolation_level=7)
    assert answer.error_code == 0 and {code for _, code, _ in parts(answer)} == {3}
    answer = ask(client, topic(name, *missing, row(0)), isolation_level=7, session_epoch=0)
    assert (answer.error_code, answer.session_id) == (-1, 0)
    assert {part.error_code for part in answer.responses[0].partitions} == {-1}
    begun = ask(client, topic(name, *missing, row(0)), session_epoch=0)
    again = ask(client, isolation_level=7, session_id=begun.session_id, session_epoch=1)
    assert (begun.error_code, again.error_code, again.session_id) == (0, -1, begun.session_id)
    assert ask(client, session_id=begun.session_id, session_epoch=2).error_code == 0


def test_read_committed_without_transactions_reads_all(client: Client) -> None:
    """Consumers with `read_committed` would stop where nobody ever wrote in a transaction."""
    client.create("committed")
    client.write("committed", Batch(), Batch())
    part = client.fetch("committed", isolation_level=1)
    assert (len(summary(part.records)), part.last_stable_offset, part.aborted_transactions) == (2, 2, [])
    assert client.fetch("committed").aborted_transactions is None


# Waiting


def test_a_fetch_wakes_when_there_is_enough(module_broker: BrokerProcess, client: Client) -> None:
    """Consumers would get records late, or in many small answers."""
    client.create("waking", 3)
    with Client(module_broker.port) as reader:
        rows = [row(partition) for partition in range(3)]
        reader.send("Fetch", 11, request(topic("waking", *rows), max_wait_ms=ANY_LONG_MS, min_bytes=2 * ONE))
        until_waiting(module_broker.metrics_url)
        client.write("waking", Batch(), partition=1)
        assert reader.silent()
        until_waiting(module_broker.metrics_url)
        client.write("waking", Batch(), partition=2)
        assert parts(reader.answer("Fetch", 11)) == [(0, 0, 0), (1, 0, 1), (2, 0, 1)]
    until_waiting(module_broker.metrics_url, 0)


def test_a_fetch_ends_when_its_time_is_up(module_broker: BrokerProcess, client: Client) -> None:
    """Consumers would hang on quiet topics."""
    client.create("quiet")
    client.write("quiet")
    part = client.fetch("quiet", wait_ms=30, min_bytes=1 << 20)
    assert (part.error_code, len(part.records)) == (0, ONE)
    assert len(client.fetch("quiet", offset=1, wait_ms=30).records) == 0
    until_waiting(module_broker.metrics_url, 0)


def test_one_write_wakes_all_who_wait_for_it(module_broker: BrokerProcess, client: Client) -> None:
    """Some consumers of a topic would get its records only after their time is up."""
    client.create("all")
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(Client(module_broker.port)) for _ in range(50)]
        for reader in readers:
            reader.send("Fetch", 11, fetch_values("all", wait_ms=ANY_LONG_MS))
        until_waiting(module_broker.metrics_url, 50)
        client.write("all")
        for reader in readers:
            assert parts(reader.answer("Fetch", 11)) == [(0, 0, 1)]


def test_a_fetch_whose_topic_goes_is_told(module_broker: BrokerProcess, client: Client) -> None:
    """A consumer of a deleted topic would wait for records that cannot come."""
    topic_id = client.create("going", 2)
    client.create("staying")
    with Client(module_broker.port) as by_name, Client(module_broker.port) as by_id:
        both = [topic("going", row(0), row(1)), topic("staying")]
        by_name.send("Fetch", 11, request(*both, max_wait_ms=ANY_LONG_MS, min_bytes=1))
        by_id.send("Fetch", 13, request(topic(topic_id), max_wait_ms=ANY_LONG_MS, min_bytes=1))
        until_waiting(module_broker.metrics_url, 2)
        client.delete("going")
        assert parts(by_name.answer("Fetch", 11)) == [(0, UNKNOWN_TOPIC, 0), (1, UNKNOWN_TOPIC, 0), (0, 0, 0)]
        assert parts(by_id.answer("Fetch", 13)) == [(0, UNKNOWN_TOPIC, 0)]
    until_waiting(module_broker.metrics_url, 0)


def test_the_fetch_of_a_client_that_left_is_forgotten(module_broker: BrokerProcess, client: Client) -> None:
    """Consumers that come and go on a quiet topic would fill the broker's memory."""
    client.create("left")
    for _ in range(3):
        readers = [Client(module_broker.port) for _ in range(20)]
        for reader in readers:
            reader.send("Fetch", 11, fetch_values("left", wait_ms=ANY_LONG_MS))
        until_waiting(module_broker.metrics_url, 20)
        for reader in readers:
            reader.reset()
        until_waiting(module_broker.metrics_url, 0)
    until(lambda: open_connections(module_broker.metrics_url) == 1, "the connections to be gone")


def test_a_client_that_half_closes_gets_what_its_fetch_waits_for(module_broker: BrokerProcess, client: Client) -> None:
    """Kafka gives it; and the fetch of a client that has ended in order ends with its time."""
    client.create("half-closed")
    with Client(module_broker.port) as reader:
        reader.send("Fetch", 11, fetch_values("half-closed", wait_ms=ANY_LONG_MS))
        reader.send("Fetch", 11, fetch_values("half-closed", wait_ms=50, min_bytes=1 << 20))
        until_waiting(module_broker.metrics_url)
        reader.half_close()
        assert reader.silent()
        client.write("half-closed")
        for number in (1, 2):
            reader._correlation_id = number
            assert parts(reader.answer("Fetch", 11)) == [(0, 0, 1)]
    until_waiting(module_broker.metrics_url, 0)
    until(lambda: open_connections(module_broker.metrics_url) == 1, "the connection to be gone")


def test_requests_behind_a_waiting_fetch_wait_for_it(module_broker: BrokerProcess, client: Client) -> None:
    """Answers would come in another order than requests, which no client can follow."""
    client.create("order")
    with Client(module_broker.port) as reader:
        reader.send("Fetch", 11, fetch_values("order", wait_ms=ANY_LONG_MS))
        reader.send(
            "ListOffsets", 1, {"replica_id": -1, "topics": [{"name": "order", "partitions": [{"timestamp": -1}]}]}
        )
        until_waiting(module_broker.metrics_url)
        assert reader.silent()
        client.write("order")
        reader._correlation_id = 1
        assert parts(reader.answer("Fetch", 11)) == [(0, 0, 1)]
        reader._correlation_id = 2
        assert reader.answer("ListOffsets", 1).topics[0].partitions[0].offset == 1


# Epochs


def test_readers_with_another_view_of_the_leader_are_sent_to_look(aged: Aged) -> None:
    """A consumer would read on from a broker that leads no longer."""
    with Client(aged.broker.port) as client:
        for epoch, code in (
            (-1, 0),
            (-2, 0),
            (5, 0),
            (6, UNKNOWN_EPOCH),
            (4, FENCED_EPOCH),
            (0, FENCED_EPOCH),
        ):
            part = client.fetch(aged.topic, place={"current_leader_epoch": epoch}, wait_ms=ANY_LONG_MS)
            assert part.error_code == code


def test_readers_whose_log_parts_from_ours_are_told_where(aged: Aged) -> None:
    """A consumer would not notice that records it read are gone."""
    with Client(aged.broker.port) as client:

        def read(offset: int, epoch: int) -> tuple[int, int, int, int]:
            part = client.fetch(aged.topic, 12, offset=offset, place={"last_fetched_epoch": epoch}, wait_ms=ANY_LONG_MS)
            diverging = part.diverging_epoch
            return part.error_code, diverging.epoch, diverging.end_offset, len(summary(part.records))

        # Epoch 0 ends at 2, epoch 5 at 3.
        assert read(0, 0) == (0, -1, -1, 3)
        assert read(2, 0) == (0, -1, -1, 1)
        assert read(3, 0) == (0, 0, 2, 0)
        assert read(2, 3) == (0, 0, 2, 0)
        assert read(2, 5) == (0, -1, -1, 1)
        assert read(9, 5) == (0, 5, 3, 0)
        assert read(0, 6) == (OUT_OF_RANGE, -1, -1, 0)


# Sessions


def in_session(client: Client, session: int, epoch: int, *topics: dict[str, Any], **values: Any) -> Any:
    return ask(client, *topics, session_id=session, session_epoch=epoch, **values)


def test_a_session_tells_only_what_changed(client: Client) -> None:
    """Consumers of many partitions would get all of them with every answer, or miss some."""
    client.create("session", 3)
    client.write("session")
    made = in_session(client, 0, 0, topic("session", row(0), row(1)))
    assert parts(made) == [(0, 0, 1), (1, 0, 0)]
    session = made.session_id
    assert session > 0
    assert parts(in_session(client, session, 1)) == [(0, 0, 1)]
    assert parts(in_session(client, session, 2, topic("session", row(0, 1)))) == []
    client.write("session", Batch(), partition=1)
    assert parts(in_session(client, session, 3)) == [(1, 0, 1)]
    assert parts(in_session(client, session, 4, topic("session", row(1, 1), row(2)))) == [(2, 0, 0)]
    forgotten = [{"topic": "session", "partitions": [1]}]
    assert parts(in_session(client, session, 5, forgotten_topics_data=forgotten)) == []
    client.write("session", Batch(), partition=1)
    assert parts(in_session(client, session, 6)) == []
    out_of_range = topic("session", row(0, 50))
    assert parts(in_session(client, session, 7, out_of_range)) == [(0, OUT_OF_RANGE, 0)]
    assert parts(in_session(client, session, 8)) == [(0, OUT_OF_RANGE, 0)]
    assert parts(in_session(client, session, 9, topic("session", row(0, 1)))) == [(0, 0, 0)]
    assert parts(in_session(client, session, -1, topic("session"))) == [(0, 0, 1)]
    assert in_session(client, session, 10).error_code == NO_SUCH_SESSION


def test_a_session_out_of_step_is_refused(client: Client) -> None:
    """A lost answer would leave a consumer with another picture of its session than the broker has."""
    client.create("steps")
    session = in_session(client, 0, 0, topic("steps")).session_id
    assert in_session(client, session, 5).error_code == WRONG_SESSION_EPOCH
    assert in_session(client, session, 1).error_code == 0
    assert in_session(client, session, 1).error_code == WRONG_SESSION_EPOCH
    assert in_session(client, session + 1, 2).error_code == NO_SUCH_SESSION
    anew = in_session(client, session, 0, topic("steps"))
    assert anew.error_code == 0
    assert anew.session_id not in (0, session)
    assert in_session(client, session, 2).error_code == NO_SUCH_SESSION


def test_a_session_waits_and_wakes(module_broker: BrokerProcess, client: Client) -> None:
    """Consumers, all of which use sessions, would get records late."""
    client.create("sleeping", 2)
    with Client(module_broker.port) as reader:
        session = in_session(reader, 0, 0, topic("sleeping", row(0), row(1))).session_id
        reader.send("Fetch", 11, request(max_wait_ms=ANY_LONG_MS, min_bytes=1, session_id=session, session_epoch=1))
        until_waiting(module_broker.metrics_url)
        client.write("sleeping", Batch(), partition=1)
        assert parts(reader.answer("Fetch", 11)) == [(1, 0, 1)]
        moved = topic("sleeping", row(1, 1))
        empty = in_session(reader, session, 2, moved, max_wait_ms=30, min_bytes=1)
        assert (parts(empty), empty.session_id) == ([], session)


def test_sessions_by_name_and_by_id_do_not_mix(client: Client) -> None:
    """After a client's upgrade a session would be read with the wrong keys."""
    topic_id = client.create("kinds")
    by_id = in_session(client, 0, 0, topic(topic_id), version=13).session_id
    assert in_session(client, by_id, 1, topic("kinds"), version=12).error_code == SESSION_OF_OTHER_KIND
    by_name = in_session(client, 0, 0, topic("kinds"), version=12).session_id
    assert in_session(client, by_name, 1, topic(topic_id), version=13).error_code == SESSION_OF_OTHER_KIND


def test_an_unknown_topic_in_a_session_is_served_once_it_is_there(client: Client) -> None:
    """A consumer that was there before its topic would have to be restarted."""
    made = in_session(client, 0, 0, topic("to-come"))
    session = made.session_id
    assert parts(made) == [(0, UNKNOWN_TOPIC, 0)]
    assert parts(in_session(client, session, 1)) == [(0, UNKNOWN_TOPIC, 0)]
    client.create("to-come")
    client.write("to-come")
    assert parts(in_session(client, session, 2)) == [(0, 0, 1)]


def test_a_session_never_reads_a_new_topic_under_an_old_id(client: Client) -> None:
    """A consumer would take another topic's records for those it was reading."""
    unknown = in_session(client, 0, 0, topic(b"\7" * 16), version=13)
    assert parts(unknown) == [(0, UNKNOWN_TOPIC_ID, 0)]
    assert parts(in_session(client, unknown.session_id, 1, version=13)) == [(0, UNKNOWN_TOPIC_ID, 0)]
    old = client.create("anew")
    client.write("anew")
    session = in_session(client, 0, 0, topic(old), version=13).session_id
    client.delete("anew")
    assert parts(in_session(client, session, 1, version=13)) == [(0, UNKNOWN_TOPIC, 0)]
    client.create("anew")
    client.write("anew", Batch([(b"new", b"new")]))
    assert parts(in_session(client, session, 2, version=13)) == [(0, OTHER_TOPIC_ID, 0)]


def test_without_room_for_a_session_a_fetch_is_served_in_full(kbroker_process: StartBroker) -> None:
    """A consumer more than the cache has slots would not be served at all."""
    broker = kbroker_process({"max.incremental.fetch.session.cache.slots": "2"})
    with Client(broker.port) as client:
        client.create("room")
        client.write("room")
        sessions = [in_session(client, 0, 0, topic("room")).session_id for _ in range(3)]
        assert [session > 0 for session in sessions] == [True, True, False]
        assert parts(in_session(client, 0, -1, topic("room"))) == [(0, 0, 1)]
        in_session(client, sessions[0], -1, topic("room"))
        assert in_session(client, 0, 0, topic("room")).session_id > 0


@pytest.mark.parametrize("version", [11, 15])
def test_a_follower_has_a_session_where_consumers_fill_the_cache(version: int, kbroker_process: StartBroker) -> None:
    """Followers would name all of their partitions with every fetch, as long as there are consumers enough."""
    broker = kbroker_process({"max.incremental.fetch.session.cache.slots": "1"})
    with Client(broker.port) as client:
        topic_id = client.create("room")
        asked = topic(topic_id if version >= FIRST_WITH_TOPIC_IDS else "room")
        who = {"replica_state": {"replica_id": 2, "replica_epoch": -1}} if version >= 15 else {"replica_id": 2}
        consumer = in_session(client, 0, 0, asked, version=version).session_id
        follower = in_session(client, 0, 0, asked, version=version, **who).session_id
        assert consumer > 0 and follower > 0
        assert in_session(client, 0, 0, asked, version=version).session_id == 0
        assert in_session(client, consumer, 1, version=version).error_code == NO_SUCH_SESSION


def test_a_partition_with_much_data_does_not_starve_the_others(client: Client) -> None:
    """Of two busy partitions a consumer would only ever see one."""
    client.create("fair", 2)
    for partition in range(2):
        client.write("fair", *[Batch()] * 3, partition=partition)
    limits = {"max_bytes": ONE}
    made = in_session(client, 0, 0, topic("fair", row(0), row(1)), **limits)
    assert parts(made) == [(0, 0, 1), (1, 0, 0)]
    seen = set()
    for epoch in range(1, 5):
        seen |= {index for index, _, count in parts(in_session(client, made.session_id, epoch, **limits)) if count}
    assert seen == {0, 1}
