"""What `kbroker produce` says when a broker takes no records."""

from __future__ import annotations

import subprocess
import sys

from kbroker.cli.connection import Cluster
from kbroker.cli.records.undelivered import reason
from tests.broker.client import Client
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.conftest import StartBroker
from tests.network.raw_client import scrape


def produce(broker: BrokerProcess, topic: str, *options: str) -> str:
    """The error line of a produce that fails."""
    command = [sys.executable, "-m", "kbroker.cli", "produce", topic, "-b", broker.bootstrap, *options]
    done = subprocess.run(command, input="x\n", capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done
    return done.stderr


def test_a_full_disk_is_named_behind_a_time_out(kbroker_process: StartBroker) -> None:
    """`Local: Message timed out` would send its reader to the network."""
    broker = kbroker_process({"kbroker.disk.reserve.bytes": str(1 << 60)})
    with Client(broker.port) as client:
        client.create("t")
    wait_for(lambda: any(scrape(broker.metrics_url).get(name) == 1 for name in gates(broker)), "a refusal")
    said = produce(broker, "t", "--timeout", "1")
    assert "Message timed out: log directory" in said and f"{broker.data_dir} of broker 1" in said
    assert "below kbroker.disk.reserve.bytes (1048576.0 TiB) it takes no records" in said


def gates(broker: BrokerProcess) -> list[str]:
    return [name for name in scrape(broker.metrics_url) if name.startswith("kbroker_log_dir_refusing{")]


def test_a_healthy_broker_or_none_gives_no_reason(broker: BrokerProcess) -> None:
    """A reason that is none would mislead."""
    with Client(broker.port) as client:
        client.create("t")
    address = Cluster(broker.bootstrap, {}, 1.0)
    assert reason(address, "t") == ""
    assert reason(address, "never") == ""
    broker.stop()
    assert reason(address, "t") == ""
