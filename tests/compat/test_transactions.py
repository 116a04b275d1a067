"""Transactions of real clients: what is committed is read once, what is aborted never, whatever client writes it.

Also of `kbroker.handlers.records.producers`, `kbroker.handlers.transactions.transaction_reports`,
`kbroker.handlers.transactions.transactional_produce`, `kbroker.handlers.transactions.remote_verification`,
`kbroker.handlers.transactions.verification`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer

from tests.broker_process import BrokerProcess
from tests.compat.streams_app import Ends
from tests.compat.tooling import node_folder, run_java
from tests.compat.transaction_rounds import create, read_all
from tests.compat.waiting import wait_for
from tests.network.raw_client import scrape

# Each client writes records `<transaction>-<number>` in so many transactions; the odd ones are aborted.
TRANSACTIONS = 6
RECORDS = 20

KAFKA_PYTHON = """
import sys
from kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1], transactional_id=sys.argv[2])
producer.init_transactions()
for number in range(6):
    producer.begin_transaction()
    for each in range(20):
        producer.send(sys.argv[3], b"%d-%d" % (number, each), partition=each % 2)
    producer.flush()
    producer.abort_transaction() if number % 2 else producer.commit_transaction()
producer.close()
"""
KAFKAJS = """
const { Kafka, logLevel } = require('kafkajs')
const [bootstrap, id, topic] = process.argv.slice(1)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
const producer = kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1 })
async function main () {
  await producer.connect()
  for (let number = 0; number < 6; number++) {
    const transaction = await producer.transaction()
    const messages = []
    for (let each = 0; each < 20; each++) messages.push({ value: `${number}-${each}`, partition: each % 2 })
    await transaction.send({ topic, messages })
    if (number % 2) await transaction.abort()
    else await transaction.commit()
  }
  await producer.disconnect()
}
main().catch(error => { console.error(error); process.exit(1) })
"""


def confluent(bootstrap: str, transactional_id: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for each in range(RECORDS):
            producer.produce(topic, b"%d-%d" % (number, each), partition=each % 2)
        # What is still in the client when it aborts is never sent.
        producer.flush()
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def aiokafka(bootstrap: str, transactional_id: str, topic: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        await producer.start()
        try:
            for number in range(TRANSACTIONS):
                await producer.begin_transaction()
                for each in range(RECORDS):
                    await producer.send_and_wait(topic, b"%d-%d" % (number, each), partition=each % 2)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        finally:
            await producer.stop()

    asyncio.run(run())


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=node_folder(), timeout=250)
    assert done.returncode == 0, done.stderr


def kafka_python(bootstrap: str, transactional_id: str, topic: str) -> None:
    _run(sys.executable, "-c", KAFKA_PYTHON, bootstrap, transactional_id, topic)


def kafkajs(bootstrap: str, transactional_id: str, topic: str) -> None:
    _run("node", "-e", KAFKAJS, bootstrap, transactional_id, topic)


def kbroker(broker: BrokerProcess, *arguments: str) -> list[dict[str, Any]]:
    """What `kbroker transactions` says, as JSON."""
    command = [sys.executable, "-m", "kbroker.cli", "transactions", *arguments, "--json", "-b", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def committed(broker: BrokerProcess, topic: str, partitions: int) -> list[bytes]:
    """What is read of a topic once no transaction is open: a producer has its answer before the markers are written."""
    wait_for(lambda: not kbroker(broker, "open", topic), "the last transaction's markers")
    return read_all(broker.bootstrap, topic, partitions)


@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka, kafkajs])
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    client: Callable[[str, str, str], None], broker: BrokerProcess
) -> None:
    """Users of a client would see records of aborted transactions, or miss those of committed ones."""
    topic = f"transactions-{client.__name__}"
    create(broker.bootstrap, **{topic: 2})
    client(broker.bootstrap, f"id-{client.__name__}", topic)
    expected = {b"%d-%d" % (number, each) for number in range(0, TRANSACTIONS, 2) for each in range(RECORDS)}
    assert Counter(committed(broker, topic, 2)) == Counter(expected)
    everything = read_all(broker.bootstrap, topic, 2, "read_uncommitted")
    assert Counter(everything) == Counter(
        b"%d-%d" % (number, each) for number in range(TRANSACTIONS) for each in range(RECORDS)
    )


def test_a_producer_of_the_same_id_fences_the_one_before(broker: BrokerProcess) -> None:
    """A zombie would commit what its successor has taken over, and records would be there twice."""
    create(broker.bootstrap, fenced=1)
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "fenced"}
    zombie = Producer(settings)
    zombie.init_transactions(60)
    zombie.begin_transaction()
    zombie.produce("fenced", b"of the zombie")
    zombie.flush()
    successor = Producer(settings)
    successor.init_transactions(60)
    with pytest.raises(KafkaException, match="fenced"):
        zombie.commit_transaction(60)
    successor.begin_transaction()
    successor.produce("fenced", b"of the successor")
    successor.commit_transaction(60)
    assert committed(broker, "fenced", 1) == [b"of the successor"]


@contextmanager
def killed_often(broker: BrokerProcess, every: int) -> Iterator[list[int]]:
    """The broker is killed and started again whenever `copy` has so many records more, however long these take; gives
    a list that grows with each."""
    stop = threading.Event()
    kills: list[int] = []

    def kill() -> None:
        ends = Ends(broker.bootstrap, "copy", 2)
        while not stop.wait(0.05):
            if ends.now() > every * (len(kills) + 1):
                broker.restart(kill=True)
                kills.append(1)
        ends.close()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield kills
    finally:
        stop.set()
        thread.join()


@pytest.mark.timeout(600)
def test_a_copy_is_exact_over_kills_of_the_broker(kbroker_process: Callable[..., BrokerProcess]) -> None:
    """Consume, process, produce would lose records, or write some twice, whenever the broker dies in between."""
    broker = kbroker_process()
    create(broker.bootstrap, source=1, copy=2)
    count = 20_000
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce("source", b"%d" % number, partition=0)
    producer.flush()
    fixed = ["--input-topic", "source", "--input-partition", "0", "--output-topic", "copy"]
    fixed += ["--consumer-group", "copier", "--transactional-id", "copier", "--enable-random-aborts"]
    fixed += ["--transaction-size", "20", "--max-messages", str(count), "--broker-list", broker.bootstrap]
    with killed_often(broker, count // 5) as kills:
        done = run_java("org.apache.kafka.tools.TransactionalMessageCopier", *fixed, seconds=500)
    assert '"stage":"ShutdownComplete"' in done.stdout, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["remaining"] == 0
    assert len(kills) >= 3
    assert Counter(committed(broker, "copy", 2)) == Counter(b"%d" % number for number in range(count))


@pytest.mark.parametrize("fsync", ["os", "commit"])
def test_transactions_survive_a_kill_as_they_were_answered(
    fsync: str, kbroker_process: Callable[..., BrokerProcess]
) -> None:
    """A commit that was acknowledged would be gone, or an abort come back, where each waits for the disk as well."""
    broker = kbroker_process({"kbroker.fsync": fsync})
    create(broker.bootstrap, kept=2)
    confluent(broker.bootstrap, "kept", "kept")
    expected = Counter(b"%d-%d" % (number, each) for number in range(0, TRANSACTIONS, 2) for each in range(RECORDS))
    assert Counter(committed(broker, "kept", 2)) == expected
    broker.restart(kill=True)
    assert Counter(committed(broker, "kept", 2)) == expected
    confluent(broker.bootstrap, "kept", "kept")
    assert Counter(committed(broker, "kept", 2)) == expected + expected


def begun(broker: BrokerProcess, name: str, timeout_ms: int) -> Producer:
    """A transaction that may take so long, with a record in the topic of its name."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, b"of the slow one")
    producer.flush()
    return producer


def test_a_transaction_that_is_open_is_named(kbroker_process: Callable[..., BrokerProcess]) -> None:
    """A producer that hangs would hold every read_committed consumer, and nobody could tell which one it is."""
    broker = kbroker_process()
    create(broker.bootstrap, slow=1)
    producer = begun(broker, "slow", 600_000)
    assert read_all(broker.bootstrap, "slow", 1) == []
    (listed,) = kbroker(broker, "list", "--state", "Ongoing")
    assert (listed["transactional_id"], listed["state"]) == ("slow", "Ongoing")
    (described,) = kbroker(broker, "describe", "slow")
    assert described["partitions"] == ["slow-0"]
    (held,) = kbroker(broker, "open", "slow")
    assert (held["transactional_id"], held["start_offset"]) == ("slow", 0)
    labels = f'{{partition="0",producer_id="{held["producer_id"]}",topic="slow",transactional_id="slow"}}'
    name = "kbroker_partition_last_stable_offset_lag"
    shown = {key for key in scrape(broker.metrics_url) if key.startswith(name)}
    assert [sorted(key.removeprefix(name).strip("{}").split(",")) for key in shown] == [
        sorted(labels.strip("{}").split(","))
    ]
    producer.abort_transaction(60)
    wait_for(lambda: not kbroker(broker, "open", "slow"), "the transaction to be over")
    assert not any(key.startswith(name) for key in scrape(broker.metrics_url))


def test_a_transaction_that_takes_too_long_is_aborted(kbroker_process: Callable[..., BrokerProcess]) -> None:
    """A producer that hangs would hold every read_committed consumer for good."""
    broker = kbroker_process({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"})
    create(broker.bootstrap, slow=1)
    producer = begun(broker, "slow", 4_000)
    wait_for(lambda: scrape(broker.metrics_url)["kbroker_transactions_timed_out_total"] == 1, "it to be aborted")
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)
    assert committed(broker, "slow", 1) == []
