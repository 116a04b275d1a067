"""`make run-cluster`: ZooKeeper and three brokers on loopback, until Ctrl-C; data in a directory that stays.

python -m tests.run_cluster [DIRECTORY [PORT …]]        (a single port is the first of three)
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.zookeeper_server import ZooKeeperServer

BROKERS = 3
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "6",
    "metrics.listener": "none",
}


def main(directory: str = "data/cluster", *given: str) -> None:
    folder, ports = Path(directory).absolute(), list(map(int, given or ("9092",)))
    ports += range(ports[-1] + 1, ports[-1] + 1 + BROKERS - len(ports))
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    server = ZooKeeperServer(folder / "zookeeper")
    brokers = [
        BrokerProcess(
            folder / f"broker-{number}",
            {**SETTINGS, "broker.id": str(number), "zookeeper.connect": server.address},
            port=port,
        )
        for number, port in enumerate(ports, 1)
    ]
    server.launch()
    try:
        server.wait()
        for broker in brokers:
            broker.start()
        bootstrap = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
        print(
            f"ZooKeeper on {server.address}; brokers on {bootstrap}; data in {folder}.  Ctrl-C ends them.", flush=True
        )
        stopping.wait()
    finally:
        for broker in reversed(brokers):
            if broker.running:
                broker.stop()
        server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
