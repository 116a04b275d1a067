"""Topics whose records have to name schemas that a registry has, in a running broker.

Also of `kbroker._fast.records.schema_ids`, `kbroker.registry.known_ids`, `kbroker.registry.configured` and
`kbroker.handlers.records.schema_validation`.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.records.record_batch import BATCH_OVERHEAD
from kbroker._fast.records.schema_ids import NO_SCHEMA, unknown_schemas
from kbroker.records.batch import Record, RecordBatchBuilder
from kbroker.records.compression import Codec
from kbroker.registry import known_ids
from kbroker.registry.errors import RegistryAwayError, SchemaError
from kbroker.registry.known_ids import KnownIds
from tests.broker.client import Client
from tests.conftest import BrokerProcess
from tests.records.stored import encode_messages
from tests.registry.stand_in import StandIn, stand_in

INVALID_RECORD, TIMED_OUT, INVALID_CONFIG = 87, 7, 40
T0 = 1_700_000_000_000
VALUE = {"confluent.value.schema.validation": "true"}
KEY = {"confluent.key.schema.validation": "true"}
Pairs = Sequence[tuple[bytes | None, bytes | None]]


def named(schema_id: int, payload: bytes = b"x") -> bytes:
    return struct.pack(">bi", 0, schema_id) + payload


def batch(pairs: Pairs, codec: int = Codec.NONE) -> bytes:
    builder = RecordBatchBuilder(compression=codec)
    for key, value in pairs:
        builder.append(key, value, T0)
    return bytes(builder.build())


def values(*given: bytes | None) -> Pairs:
    return [(None, value) for value in given]


@pytest.fixture(name="registry", scope="module")
def _registry() -> Iterator[StandIn]:
    with stand_in() as registry:
        for number in range(1, 8):
            registry.add("s", f'{{"type": "fixed", "name": "F", "size": {number}}}')
        yield registry


@pytest.fixture(name="broker", scope="module")
def _broker(registry: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("validation")
    with BrokerProcess(directory, {"confluent.schema.registry.url": registry.url}) as broker:
        yield broker


@pytest.fixture(name="client")
def _client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.port) as client:
        yield client


@pytest.mark.parametrize("codec", range(5))
def test_an_unknown_id_is_refused_and_named(client: Client, codec: int) -> None:
    """Consumers would be sent what they cannot decode, or a producer not learn which record it was."""
    topic, gone = f"value-{codec}", 90 + codec
    client.create(topic, configs=VALUE)
    assert client.produce(topic, batch(values(named(1), None, named(2)), codec)).error_code == 0
    answer = client.produce(topic, batch(values(named(1), named(gone), b"text", b""), codec))
    assert (answer.error_code, answer.base_offset) == (INVALID_RECORD, -1)
    assert [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors] == [
        (2, "The value does not begin with a zero byte and the id of a schema"),
        (3, "The value does not begin with a zero byte and the id of a schema"),
    ]
    answer = client.produce(topic, batch(values(named(1), named(gone)), codec))
    assert (answer.error_code, answer.base_offset) == (INVALID_RECORD, -1)
    assert [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors] == [
        (1, f"The value names schema {gone}, which the registry does not have"),
    ]
    assert "in the append to" in answer.error_message
    assert client.offset(topic) == 3


def test_keys_and_values_are_asked_for_apart(client: Client) -> None:
    """A topic with plain keys could not have its values looked at."""
    client.create("keys", configs=KEY)
    client.create("both", configs={**KEY, **VALUE})
    assert client.produce("keys", batch([(named(1), b"plain"), (None, b"plain")])).error_code == 0
    answer = client.produce("keys", batch([(named(1), b"plain"), (b"plain", named(1))]))
    assert [each.batch_index_error_message for each in answer.record_errors] == [
        "The key does not begin with a zero byte and the id of a schema"
    ]
    assert client.produce("both", batch([(named(1), named(2))])).error_code == 0
    assert client.produce("both", batch([(named(1), b"plain")])).error_code == INVALID_RECORD


def test_a_large_batch_is_looked_at_too(client: Client) -> None:
    """What a thread judges would not be asked for schemas."""
    client.create("large", configs={**VALUE, "max.message.bytes": str(64 << 20)})
    for codec in (Codec.NONE, Codec.LZ4, Codec.GZIP):
        good = [named(3, bytes(200) + struct.pack(">i", number) * 25) for number in range(5000)]
        assert client.produce("large", batch(values(*good), codec)).error_code == 0
        answer = client.produce("large", batch(values(*good, named(4), named(77)), codec))
        assert answer.error_code == INVALID_RECORD
        assert [each.batch_index for each in answer.record_errors] == [5001]


def test_messages_of_old_clients_and_old_topics_are_looked_at(client: Client) -> None:
    """A producer of that age would be the way around the rule."""
    client.create("old-client", configs=VALUE)
    client.create("old-topic", configs={**VALUE, "message.format.version": "0.10.2"})
    for topic in ("old-client", "old-topic"):
        for value, wanted in ((named(1), 0), (named(98), INVALID_RECORD), (b"plain", INVALID_RECORD)):
            assert (
                client.produce(topic, encode_messages([Record(0, T0, None, value)], 1, Codec.NONE), 2).error_code
                == wanted
            )
    for value, wanted in ((named(1), 0), (named(98), INVALID_RECORD)):
        assert client.produce("old-topic", batch(values(value))).error_code == wanted


def test_other_topics_take_all(client: Client) -> None:
    """The rule of one topic would hold for others."""
    client.create("plain")
    assert client.produce("plain", batch(values(b"text"))).error_code == 0
    client.create("turned-on")
    assert client.produce("turned-on", batch(values(b"text"))).error_code == 0


def test_ids_are_asked_for_once(client: Client, registry: StandIn) -> None:
    """Each batch would wait for the registry."""
    client.create("once", configs=VALUE)
    client.produce("once", batch(values(named(5))))
    before, begin = len(registry.asked), time.monotonic()
    for _ in range(20):
        assert client.produce("once", batch(values(named(5), named(5)))).error_code == 0
        assert client.produce("once", batch(values(named(66)))).error_code == INVALID_RECORD
    # That there is none is believed for a while.
    assert len(registry.asked) - before <= 2 + (time.monotonic() - begin) // known_ids.UNKNOWN_SECONDS


def test_a_registry_that_is_away_has_producers_try_again(
    client: Client, broker: BrokerProcess, registry: StandIn
) -> None:
    """Records of schemas that are new would be lost, or those of known ones be refused."""
    client.create("away", configs=VALUE)
    assert client.produce("away", batch(values(named(6)))).error_code == 0
    registry.status = 503
    try:
        assert client.produce("away", batch(values(named(6)))).error_code == 0
        answer = client.produce("away", batch(values(named(7))))
        assert (answer.error_code, answer.base_offset) == (TIMED_OUT, -1)
        assert "HTTP status 503" in answer.error_message
        assert "HTTP status 503; records with ids that are new are refused meanwhile" in broker.output()
    finally:
        registry.status = 0
    # Until the pause is over.
    while (answer := client.produce("away", batch(values(named(7))))).error_code:
        assert answer.error_code == TIMED_OUT


def test_what_becomes_of_batches_and_look_ups_is_counted(
    client: Client, broker: BrokerProcess, registry: StandIn
) -> None:
    """Nobody would see that producers are refused, or that the registry is asked for every batch, or not at all."""
    client.create("counted", configs=VALUE)
    number = registry.add("s", '{"type": "fixed", "name": "F", "size": 200}')

    def counts() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        rows = (line.rsplit(" ", 1) for line in lines if line.startswith("kbroker_schema_"))
        return {name.removeprefix("kbroker_schema_"): float(value) for name, value in rows}

    def grown(before: dict[str, float]) -> dict[str, float]:
        return {name: value - before[name] for name, value in counts().items() if value != before[name]}

    before = counts()
    for _ in range(3):
        assert client.produce("counted", batch(values(named(number)))).error_code == 0
    assert grown(before) == {
        'validation_batches_total{outcome="asked"}': 1,
        'validation_batches_total{outcome="known"}': 2,
        'lookups_total{answer="found"}': 1,
        "known_ids": 1,
    }
    before = counts()
    for _ in range(2):
        assert client.produce("counted", batch(values(named(4711)))).error_code == INVALID_RECORD
    assert client.produce("counted", batch(values(b"no schema"))).error_code == INVALID_RECORD
    assert grown(before) == {
        'validation_batches_total{outcome="refused"}': 3, 'lookups_total{answer="unknown"}': 1
    }  # fmt: skip
    before, registry.status = counts(), 503
    try:
        for _ in range(2):
            assert client.produce("counted", batch(values(named(4712)))).error_code == TIMED_OUT
    finally:
        registry.status = 0
    told = grown(before)
    assert told.pop('lookups_total{answer="failed"}') >= 1
    assert told == {'validation_batches_total{outcome="away"}': 2}
    late = registry.add("s", '{"type": "fixed", "name": "F", "size": 201}')
    while client.produce("counted", batch(values(named(late)))).error_code:
        pass


def test_others_are_served_while_the_registry_takes_its_time(
    client: Client, broker: BrokerProcess, registry: StandIn
) -> None:
    """One producer with a new schema would stop the broker."""
    client.create("slow", configs=VALUE)
    number = registry.add("s", '{"type": "fixed", "name": "F", "size": 100}')
    registry.gate.clear()
    answers: list[int] = []
    try:
        with Client(broker.port) as other:
            waiting = threading.Thread(
                target=lambda: answers.append(other.produce("slow", batch(values(named(number)))).error_code)
            )
            waiting.start()
            assert client.produce("slow", batch(values(named(1)))).error_code == 0
            assert answers == []
            registry.gate.set()
            waiting.join()
    finally:
        registry.gate.set()
    assert answers == [0]


def test_settings_that_are_not_there_are_refused(client: Client) -> None:
    """A topic would seem to hold ids against subjects."""
    rows = [{"name": "confluent.value.subject.name.strategy", "value": "x"}]
    topic = {"name": "strategy", "num_partitions": 1, "replication_factor": 1, "configs": rows}
    made = client.ask("CreateTopics", 7, {"topics": [topic], "timeout_ms": 30_000}).topics[0]
    assert (made.error_code, made.error_message) == (
        INVALID_CONFIG,
        "Unknown topic config name: confluent.value.subject.name.strategy",
    )


def test_a_broker_without_a_registry_says_so(tmp_path: Path) -> None:
    """The setting would be without effect, and nobody know; or a producer that tries again fill the log."""
    lacking = "takes records with schemas alone, and this broker has no confluent.schema.registry.url"
    with BrokerProcess(tmp_path) as broker, Client(broker.port) as client:
        for topic in ("alone", "also-alone"):
            client.create(topic, configs=VALUE)
            for _ in range(3):
                answer = client.produce(topic, batch(values(named(1))))
                assert (answer.error_code, answer.error_message) == (INVALID_RECORD, f"{topic}-0 {lacking}")
        assert client.produce("alone", batch(values(None))).error_code == 0
        told = [line for line in broker.output().splitlines() if lacking in line]
    assert [line.partition(": ")[2] for line in told] == [f"alone-0 {lacking}", f"also-alone-0 {lacking}"]


def test_a_registry_that_is_away_is_told_of_in_the_log_but_not_for_each_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Producers would be refused and the log not say why, or say nothing else."""
    clock, asked = Hand(), list[int]()

    def has(number: int) -> bool:
        asked.append(number)
        raise SchemaError("nobody is at home")

    async def run() -> None:
        ids = KnownIds(has, clock)
        for number in range(5):
            for _ in range(2):
                with pytest.raises(RegistryAwayError, match="nobody is at home"):
                    await ids.ask(number)
            clock.seconds += known_ids.AWAY_SECONDS

    asyncio.run(run())
    assert asked == [0, 1, 2, 3, 4]
    assert caplog.messages == ["nobody is at home; records with ids that are new are refused meanwhile"]


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=8), st.none() | st.builds(named, st.integers(-2, 5))), min_size=1
    ),
    st.sets(st.integers(-2, 5)),
    st.booleans(),
    st.booleans(),
)
def test_the_walk_finds_what_a_slow_one_finds(pairs: Pairs, known: set[int], keys: bool, values: bool) -> None:
    """A record between others would pass, or a good one be refused."""
    wanted = []
    known = {number % (1 << 32) for number in known}
    for index, pair in enumerate(pairs):
        for is_key, data in zip((True, False), pair, strict=True):
            if data is None or not (keys if is_key else values):
                continue
            number = int.from_bytes(data[1:5], "big") if len(data) >= 5 and data[0] == 0 else NO_SCHEMA
            if number not in known:
                wanted.append((index, is_key, number))
    payload = batch(pairs)[BATCH_OVERHEAD:]
    assert unknown_schemas(payload, known, keys=keys, values=values, most=1000) == wanted
    assert unknown_schemas(payload, known, keys=keys, values=values, most=1)[:1] == wanted[:1]


@given(st.binary(max_size=60))
def test_the_walk_stays_within_its_bytes(data: bytes) -> None:
    """A batch could have memory read that is not its own."""
    try:
        unknown_schemas(data, set(), keys=True, values=True, most=10)
    except ValueError as error:
        assert "nvalid record" in str(error)


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return 0


def test_answers_are_believed_for_a_while_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that was deleted would be taken for ever, one that came later never."""
    there, clock, asked = {1}, Hand(), list[int]()

    def has(number: int) -> bool:
        asked.append(number)
        if number == 3:
            raise SchemaError("no answer")
        return number in there

    async def run() -> None:
        ids = KnownIds(has, clock)
        # One question for all who ask at the same time.
        assert await asyncio.gather(*(ids.ask(1) for _ in range(5))) == [True] * 5
        assert (asked, ids.fresh(), await ids.ask(2), ids.lacks(2)) == ([1, 2], {1}, False, True)
        clock.seconds = known_ids.UNKNOWN_SECONDS
        assert (ids.fresh(), ids.lacks(2)) == ({1}, False)
        with pytest.raises(RegistryAwayError, match="no answer"):
            await ids.ask(3)
        with pytest.raises(RegistryAwayError, match="no answer"):
            await ids.ask(4)
        assert asked == [1, 2, 3]
        clock.seconds = known_ids.KNOWN_SECONDS
        assert ids.fresh() == set()
        assert await ids.ask(1)
        monkeypatch.setattr(known_ids, "MOST_IDS", 2)
        there.update(range(10, 20))
        for number in range(10, 20):
            await ids.ask(number)
            await ids.ask(number + 100)
        assert ids.fresh() == {18, 19}
        assert [ids.lacks(number) for number in (117, 118, 119)] == [False, True, True]

    asyncio.run(run())
