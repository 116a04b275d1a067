"""Transactions are not served: a client of any kind that asks for one gets its end after a request or two."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.compat.tooling import java_command, node_folder
from tests.network.raw_client import scrape

KAFKA_PYTHON = """
import sys
from kafka import KafkaProducer
KafkaProducer(bootstrap_servers=sys.argv[1], transactional_id='tx').init_transactions()
"""
KAFKAJS = """
const { Kafka, logLevel } = require('kafkajs')
const kafka = new Kafka({ brokers: [process.argv[1]], logLevel: logLevel.NOTHING })
const producer = kafka.producer({ transactionalId: 'tx', idempotent: true, maxInFlightRequests: 1 })
producer.connect().then(() => producer.transaction()).catch(error => {
  console.error(error.message)
  process.exit(1)
})
"""


def confluent(bootstrap: str) -> None:
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"}).init_transactions(60)


def aiokafka(bootstrap: str) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx")
        try:
            await producer.start()
        finally:
            await producer.stop()

    asyncio.run(start())


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=node_folder())
    if done.returncode != 0 or "xception" in done.stderr:
        raise RuntimeError(done.stderr)


def kafka_python(bootstrap: str) -> None:
    _run(sys.executable, "-c", KAFKA_PYTHON, bootstrap)


def kafkajs(bootstrap: str) -> None:
    _run("node", "-e", KAFKAJS, bootstrap)


def java(bootstrap: str) -> None:
    tool = "org.apache.kafka.tools.ProducerPerformance"
    fixed = ("--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "-1")
    _run(*java_command(tool, *fixed, "--transactional-id", "tx", "--bootstrap-server", bootstrap))


@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka, kafkajs, java])
def test_a_transaction_ends_at_once(
    client: Callable[[str], None], kbroker_process: Callable[..., BrokerProcess]
) -> None:
    """A program would hang in its first transaction, and load the broker with questions, without a word why."""
    broker = kbroker_process()
    with pytest.raises(Exception, match=r"(?i)transactional.?id.?authorization.?failed"):
        client(broker.bootstrap)
    asked = scrape(broker.metrics_url)
    assert asked['kbroker_requests_total{api="FindCoordinator"}'] <= 2
    assert asked['kbroker_requests_total{api="InitProducerId"}'] <= 2
    assert "kbroker does not implement transactions yet" in broker.output()
