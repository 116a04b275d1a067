"""`make run-cluster`: three brokers on loopback, until Ctrl-C; data in a directory that stays.

python -m tests.run_cluster [--kind kbroker|kafka|zookeeper] [DIRECTORY [PORT …]]    (one port: the first)

Each broker is a controller of the cluster as well (kbroker), or Apache Kafka's controller or ZooKeeper keeps it, from
their jars.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.cluster.kraft.combined import combined, start_together, stop_together
from tests.cluster.kraft.processes import FIRST_CONTROLLER, JavaNode, Kbroker
from tests.ports import free_port
from tests.zookeeper_server import ZooKeeperServer

BROKERS = 3
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "metrics.listener": "none",
}


@contextmanager
def kbroker(folder: Path, ports: Sequence[int]) -> Iterator[str]:
    """Brokers that are controllers as well; yields where what is."""
    nodes = combined(folder, ports, SETTINGS)
    with ExitStack() as ended:
        for node in nodes:
            ended.callback(lambda node=node: node.running and node.kill())
        ended.callback(lambda: stop_together(nodes))
        start_together(nodes)
        yield "three controllers, one in each broker"


@contextmanager
def kafka(folder: Path, ports: Sequence[int]) -> Iterator[str]:
    """A controller of Apache Kafka and brokers; yields where what is."""
    port = free_port()
    voters = f"{FIRST_CONTROLLER}@127.0.0.1:{port}"
    own = {
        "process.roles": "controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        # New topics have what the controllers' settings say.
        **{name: SETTINGS[name] for name in ("default.replication.factor", "min.insync.replicas")},
    }
    with ExitStack() as ended:
        controller = JavaNode(FIRST_CONTROLLER, folder / "controller", port, own, heap="256m")
        ended.callback(controller.stop)
        controller.start()
        for number, each in enumerate(ports, 1):
            broker = Kbroker(number, folder / f"broker-{number}", voters, SETTINGS, port=each)
            broker.start()
            ended.callback(broker.stop)
        yield f"a controller on 127.0.0.1:{port}"


@contextmanager
def zookeeper(folder: Path, ports: Sequence[int]) -> Iterator[str]:
    """The same with ZooKeeper."""
    with ExitStack() as ended:
        server = ZooKeeperServer(folder / "zookeeper")
        ended.callback(server.stop)
        server.launch()
        server.wait()
        for number, port in enumerate(ports, 1):
            settings = {**SETTINGS, "broker.id": str(number), "zookeeper.connect": server.address}
            broker = BrokerProcess(folder / f"broker-{number}", settings, port=port).start()
            ended.callback(lambda broker=broker: broker.running and broker.stop())
        yield f"ZooKeeper on {server.address}"


KINDS = {
    "kbroker": (kbroker, "data/kbroker-cluster"),
    "kafka": (kafka, "data/kraft-cluster"),
    "zookeeper": (zookeeper, "data/cluster"),
}


def main() -> None:
    options = argparse.ArgumentParser(prog="make run-cluster")
    options.add_argument("--kind", choices=KINDS, default="kbroker")
    options.add_argument("directory", nargs="?", type=Path)
    options.add_argument("ports", nargs="*", type=int)
    given = options.parse_args()
    begin, directory = KINDS[given.kind]
    folder = (given.directory or Path(directory)).absolute()
    ports = given.ports or [9092]
    ports += range(ports[-1] + 1, ports[-1] + 1 + BROKERS - len(ports))
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with begin(folder, ports) as keeper:
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        print(f"{keeper}; brokers on {bootstrap}; data in {folder}.  Ctrl-C ends them.", flush=True)
        stopping.wait()


if __name__ == "__main__":
    main()
