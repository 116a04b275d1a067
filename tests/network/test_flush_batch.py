"""Requests that come in the same turn of the loop: answered together, each as if it were alone.

Also of `kbroker._fast.net.flush_batch`.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient
from tests.network.thread_names import threads_named

CLIENTS = 12
PARTITIONS = 4
TOPIC = "together"
# Behind base offset, length and leader epoch, which a broker writes.
OWN_BYTES = 16


@pytest.fixture(name="clients")
def _clients(broker: BrokerProcess) -> Iterator[list[RawClient]]:
    raw.create_topic(broker.port, TOPIC, PARTITIONS)
    with ExitStack() as stack:
        yield [stack.enter_context(RawClient(broker.port)) for _ in range(CLIENTS)]


@contextmanager
def held_up(broker: BrokerProcess) -> Iterator[None]:
    """What is sent inside comes to the broker in one turn of its loop."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        while "(stopped)" not in Path(f"/proc/{broker.pid}/status").read_text():
            os.sched_yield()
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def crowd(broker: BrokerProcess, clients: list[RawClient]) -> None:
    """Two turns with requests of all clients: from then on the loop takes the next one for crowded, too."""
    for _ in range(2):
        with held_up(broker):
            for client in clients:
                client.send(raw.api_versions())
        for client in clients:
            assert client.read() is not None


def write_calls(broker: BrokerProcess) -> int:
    lines = Path(f"/proc/{broker.pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscw"))


def batch_of(number: int, size: int = 20) -> bytes:
    return raw.good_batch(1, struct.pack(">i", number) + bytes([number % 251]) * size)


def stored(broker: BrokerProcess, partition: int = 0) -> dict[int, bytes]:
    """The batches of the topic's partition as they were sent, by base offset."""
    found: dict[int, bytes] = {}
    with RawClient(broker.port) as client:
        while True:
            answer = client.ask(raw.fetch(TOPIC, partition, len(found), max_bytes=8 << 20))
            # Behind correlation id, throttle time, topic, partition, error, two offsets and no aborted transactions.
            at = 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4 + 2 + 8 + 8 + 4
            (size,) = struct.unpack_from(">i", answer, at)
            if size <= 0:
                return found
            records = answer[at + 4 : at + 4 + size]
            while len(records) > OWN_BYTES:
                first, length = struct.unpack_from(">qi", records)
                if len(records) < 12 + length:
                    break
                found[first] = records[OWN_BYTES : 12 + length]
                records = records[12 + length :]


def test_batches_that_come_together_are_written_together(broker: BrokerProcess, clients: list[RawClient]) -> None:
    """Each request would cost a write of its own, or be told another one's offset."""
    crowd(broker, clients)
    rounds, sent = 20, {}
    before = write_calls(broker)
    for number in range(rounds):
        batches = [batch_of(number * CLIENTS + at, at * 300) for at in range(CLIENTS)]
        with held_up(broker):
            for client, data in zip(clients, batches, strict=True):
                client.send(raw.produce(TOPIC, 0, data))
        for client, data in zip(clients, batches, strict=True):
            error, offset = raw.produce_answer(client.read() or b"")
            assert error == raw.NONE and offset not in sent
            sent[offset] = data[OWN_BYTES:]
    assert write_calls(broker) - before < rounds * CLIENTS / 2
    assert stored(broker) == sent


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="threads beside the loop are for other processors")
def test_large_batches_that_come_together_are_written_by_several_threads(
    broker: BrokerProcess, clients: list[RawClient]
) -> None:
    """Other processors would stand idle, or records end in another partition, twice, or damaged."""
    crowd(broker, clients)
    sent: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
    number = 0
    while number < 240 or not threads_named("kbroker-helper", broker.pid):
        assert number < 4_000
        batches = [batch_of(number + at, 10_000 + at * 3_000) for at in range(CLIENTS)]
        with held_up(broker):
            for at, client in enumerate(clients):
                client.send(raw.produce(TOPIC, at % PARTITIONS, batches[at]))
        for at, client in enumerate(clients):
            error, offset = raw.produce_answer(client.read() or b"")
            assert error == raw.NONE and offset not in sent[at % PARTITIONS]
            sent[at % PARTITIONS][offset] = batches[at][OWN_BYTES:]
        number += CLIENTS
    for partition, expected in enumerate(sent):
        assert stored(broker, partition) == expected


def test_one_request_of_a_turn_does_not_fail_the_others(broker: BrokerProcess, clients: list[RawClient]) -> None:
    """A client's bad request would cost others their records, or what a client sent before it left would be lost."""
    good = [batch_of(at) for at in range(CLIENTS)]
    damaged = good[0][:-1] + b"!"
    crowd(broker, clients)
    with held_up(broker):
        clients[0].send(raw.produce(TOPIC, 0, damaged))
        clients[1].send(raw.produce("missing", 0, good[1]))
        clients[2].send(raw.produce(TOPIC, 0, good[2], acks=0) + raw.api_versions())
        clients[3].send(raw.produce(TOPIC, 0, good[3]))
        clients[3].socket.shutdown(socket.SHUT_WR)
        clients[4].send(raw.produce(TOPIC, 0, good[4]) + raw.produce(TOPIC, 0, good[4], acks=0))
        clients[4].socket.shutdown(socket.SHUT_WR)
        clients[5].send(raw.produce(TOPIC, 0, good[5]) + struct.pack(">i", -5))
        for at in range(6, CLIENTS):
            clients[at].send(raw.produce(TOPIC, 0, good[at]) + raw.api_versions(9))
    assert raw.produce_answer(clients[0].read() or b"")[0] == raw.CORRUPT_MESSAGE
    assert raw.produce_answer(clients[1].read() or b"")[0] == 3
    assert clients[2].read() is not None
    assert raw.produce_answer(clients[5].read() or b"")[0] == raw.NONE
    assert clients[5].read() is None
    for at in range(6, CLIENTS):
        assert raw.produce_answer(clients[at].read() or b"")[0] == raw.NONE
        assert (clients[at].read() or b"")[:4] == struct.pack(">i", 9)
    expected = [*good[2:4], good[4], good[4], *good[5:]]
    assert sorted(stored(broker).values()) == sorted(data[OWN_BYTES:] for data in expected)


def test_clients_that_send_many_requests_at_once_keep_their_order(
    broker: BrokerProcess, clients: list[RawClient]
) -> None:
    """A producer that does not wait would find its records in another order, or its answers at other requests."""
    rng = random.Random(5)
    sent: dict[int, bytes] = {}
    for _ in range(4):
        crowd(broker, clients)
        asked: list[list[bytes | None]] = [[] for _ in clients]
        with held_up(broker):
            for each, client in zip(asked, clients, strict=True):
                # More than a socket takes at once would wait for the broker that waits for us.
                room = 150_000
                while room > 0:
                    size = rng.choice([0, 10, 1_000, 16_000, 65_400, 70_000])
                    room -= size + 5_000
                    plain = rng.random() < 0.2
                    data = batch_of(rng.randrange(1 << 30), size)
                    number = len(each)
                    each.append(None if plain else data)
                    produce = raw.produce(TOPIC, 0, data, correlation_id=number)
                    client.send(raw.api_versions(number) if plain else produce)
        for each, client in zip(asked, clients, strict=True):
            last = -1
            for number, sent_then in enumerate(each):
                answer = client.read() or b""
                assert answer[:4] == struct.pack(">i", number)
                if sent_then is not None:
                    error, offset = raw.produce_answer(answer)
                    assert error == raw.NONE and offset > last
                    last = offset
                    sent[offset] = sent_then[OWN_BYTES:]
    assert stored(broker) == sent
