"""Kafka Connect, distributed, with connectors for files: a source that is exactly once, and a sink."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.integrations.conftest import StartProgram
from tests.integrations.programs import Program, append, java_program, properties
from tests.integrations.topics import Reader, numbered
from tests.ports import free_port

WORKER = {
    "group.id": "connect-cluster",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": "1",
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": "1",
    "status.storage.topic": "connect-status",
    "status.storage.replication.factor": "1",
    "exactly.once.source.support": "enabled",
}
SOURCE = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "tasks.max": "1",
    "exactly.once.support": "required",
    "topic": "lines",
}
SINK = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "tasks.max": "1",
    "topics": "lines",
    "consumer.override.isolation.level": "read_committed",
    "consumer.override.auto.offset.reset": "earliest",
}


class Worker:
    """The REST interface of a worker."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: object = None) -> Any:
        """The answer to GET, or to PUT of `body`; None while there is none or the worker is busy (409)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        if data is not None:
            request.method = "PUT"
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                assert error.code in (404, 409, 503), error.read()
                return None
        except OSError:
            return None

    def is_running(self, connector: str) -> bool:
        """Whether a connector and its one task run."""
        status = self.ask(f"/connectors/{connector}/status")
        assert status is None or all(task["state"] != "FAILED" for task in status["tasks"]), status
        return status is not None and [task["state"] for task in status["tasks"]] == ["RUNNING"]

    def make(self, connector: str, settings: dict[str, str]) -> None:
        """Have a connector, and wait until it runs."""
        wait_for(lambda: self.ask(f"/connectors/{connector}/config", settings), "an answer", seconds=240, every=0.3)
        wait_for(lambda: self.is_running(connector), f"{connector} to run", seconds=240, every=0.3)


def start_worker(broker: BrokerProcess, program: StartProgram, folder: Path) -> tuple[Program, Worker]:
    port = free_port()
    settings = {**WORKER, "bootstrap.servers": broker.bootstrap, "listeners": f"http://127.0.0.1:{port}"}
    path = properties(folder / "connect-distributed.properties", settings)
    command = java_program("connect", "org.apache.kafka.connect.cli.ConnectDistributed", path)
    return program("connect", command), Worker(port)


def test_lines_of_a_file_come_once_though_broker_and_worker_die(
    broker: BrokerProcess, program: StartProgram, tmp_path: Path
) -> None:
    """A restart of the broker or of the worker would lose lines or write them twice, or stop a connector for good."""
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    process, worker = start_worker(broker, program, tmp_path)
    lines = numbered("line", 0, 5000)
    append(source, lines[:1000])
    worker.make("source", {**SOURCE, "file": str(source)})
    worker.make("sink", {**SINK, "file": str(sink)})
    with Reader(broker.bootstrap, "lines") as reader:
        reader.wait_for(500)
        append(source, lines[1000:2000])
        broker.restart()
        append(source, lines[2000:3000])
        reader.wait_for(2500)
        append(source, lines[3000:4000])
        broker.restart(kill=True)
        reader.wait_for(3500)
        append(source, lines[4000:4500])
        process.kill()
        append(source, lines[4500:])
        process.start()
        reader.assert_exactly(lines)
    wait_for(lambda: worker.is_running("source") and worker.is_running("sink"), "both to run", seconds=240, every=0.3)
    wait_for(lambda: set(sink.read_text().split()) >= set(lines), "the sink to have all lines", seconds=240, every=0.3)
    assert process.stop() in (0, 143)
