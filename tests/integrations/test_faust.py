"""A worker of faust, which asks for its topics at its start."""

from __future__ import annotations

from tests.conftest import StartBroker
from tests.integrations.conftest import StartProgram
from tests.integrations.programs import APPS, Program, python_program
from tests.integrations.topics import Reader, Writer, numbered

NOT_FOUND = "Topic orders not found in cluster metadata"


def worker(program: StartProgram, bootstrap: str) -> Program:
    command = python_program("faust", "-m", "faust", "-A", "faust_app", "worker", "-l", "info", "--without-web")
    return program("faust", command, {"BOOTSTRAP": bootstrap, "PYTHONPATH": str(APPS)})


def test_a_worker_starts_at_once_on_an_empty_broker(kbroker_process: StartBroker, program: StartProgram) -> None:
    """With `kbroker.auto.create.answers.at.once` a worker whose topics do not exist would still need another try, or
    a restart of the broker would cost it orders."""
    broker = kbroker_process({"kbroker.auto.create.answers.at.once": "true"})
    app = worker(program, broker.bootstrap)
    app.wait_for("Worker ready")
    assert NOT_FOUND not in app.output()
    writer, orders = Writer(broker.bootstrap, "orders"), numbered("order", 0, 2000)
    bills = [f"bill of {order}" for order in orders]
    with Reader(broker.bootstrap, "bills") as reader:
        writer.write(orders[:500])
        reader.wait_for(200)
        broker.restart()
        writer.write(orders[500:1000])
        reader.wait_for_all(bills[:800])
        broker.restart(kill=True)
        writer.write(orders[1000:])
        writer.finish()
        reader.wait_for_all(bills)
    app.stop()


def test_a_worker_does_not_find_its_topic_at_its_start_as_with_kafka(bootstrap: str, program: StartProgram) -> None:
    """The page would name a setting that makes no difference."""
    app = worker(program, bootstrap)
    app.wait_for("Worker ready")
    assert NOT_FOUND in app.output()
