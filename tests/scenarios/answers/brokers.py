"""Whose answers are checked: brokers of kbroker, alone, as workers and as a cluster, and Apache Kafka's beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.cluster.zookeeper import processes
from tests.compat.real_kafka import KafkaProcess
from tests.workers.processes import Workers

Ports = Mapping[int, int]
NODES = 3
SMALL = {"auto.create.topics.enable": "false"}


@contextmanager
def _node(folder: Path, fsync: str) -> Iterator[Ports]:
    with BrokerProcess(folder, {**SMALL, "kbroker.fsync": fsync}) as broker:
        yield {1: broker.port}


@contextmanager
def _workers(folder: Path) -> Iterator[Ports]:
    workers = Workers(folder, NODES, SMALL)
    try:
        workers.up()
        yield {number + 1: workers.port + number for number in range(NODES)}
    finally:
        workers.close()


@contextmanager
def _cluster(folder: Path, kind: type[processes.Node]) -> Iterator[Ports]:
    settings = {"default.replication.factor": "3", "min.insync.replicas": "2", **SMALL}
    with processes.running(folder, [kind] * NODES, settings) as cluster:
        yield {number: node.port for number, node in cluster.nodes.items()}


@contextmanager
def _kafka(folder: Path) -> Iterator[Ports]:
    kafka = KafkaProcess(folder, SMALL)
    kafka.start()
    try:
        yield {1: kafka.port}
    finally:
        kafka.stop()


KINDS: Mapping[str, Callable[[Path], AbstractContextManager[Ports]]] = {
    "node": lambda folder: _node(folder, "os"),
    "fsync": lambda folder: _node(folder, "commit"),
    "workers": _workers,
    "cluster": lambda folder: _cluster(folder, processes.Kbroker),
    "kafka": _kafka,
    "kafka-cluster": lambda folder: _cluster(folder, processes.Kafka),
}
