"""A microservice of NestJS on Kafka, which subscribes to its topics at its start and ends where one is not there."""

from __future__ import annotations

from confluent_kafka import Producer

from tests.compat.installing import compiled_node
from tests.compat.waiting import wait_for
from tests.conftest import StartBroker
from tests.integrations.conftest import StartProgram
from tests.integrations.programs import HERE, Program
from tests.tools import require_tool

LISTENS = "the service listens"


def service(program: StartProgram, bootstrap: str) -> Program:
    folder = compiled_node(HERE / "nestjs")
    return program("nestjs", [require_tool("node"), str(folder / "dist" / "main.js")], {"BOOTSTRAP": bootstrap})


def test_a_microservice_starts_at_once_on_an_empty_broker(kbroker_process: StartBroker, program: StartProgram) -> None:
    """With `kbroker.auto.create.answers.at.once` a service whose topics do not exist would end at its start, or a
    restart of the broker would cost it events."""
    broker = kbroker_process({"kbroker.auto.create.answers.at.once": "true"})
    app = service(program, broker.bootstrap)
    app.wait_for(LISTENS)
    assert "ERROR" not in app.output()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})

    def send(first: int, end: int) -> None:
        for number in range(first, end):
            producer.produce("orders", f'{{"id": {number}}}')
        assert producer.flush(240) == 0

    def wait_for_all(end: int) -> None:
        wanted = {f"order {number}" for number in range(end)}
        wait_for(lambda: wanted <= set(app.output().splitlines()), "all events", seconds=240, every=0.2)

    send(0, 500)
    wait_for_all(500)
    send(500, 1000)
    broker.restart()
    send(1000, 1500)
    wait_for_all(1500)
    send(1500, 1600)
    broker.restart(kill=True)
    send(1600, 2000)
    wait_for_all(2000)
    assert app.running


def test_a_microservice_ends_at_its_start_as_with_kafka(bootstrap: str, program: StartProgram) -> None:
    """The page would name a setting that makes no difference."""
    app = service(program, bootstrap)
    wait_for(lambda: not app.running or LISTENS in app.output(), "an end", seconds=240, every=0.1)
    assert LISTENS not in app.output()
    assert "does not host this topic-partition" in app.output()
