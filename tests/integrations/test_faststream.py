"""An application of FastStream, on aiokafka and on confluent-kafka, run by its own command."""

from __future__ import annotations

import pytest

from tests.broker_process import BrokerProcess
from tests.integrations.conftest import StartProgram
from tests.integrations.programs import APPS, python_program
from tests.integrations.topics import Reader, Writer, numbered, through_restarts


@pytest.mark.parametrize("client", ["aiokafka", "confluent"])
def test_no_order_goes_without_a_bill(client: str, broker: BrokerProcess, program: StartProgram) -> None:
    """A restart of the broker or of the application would lose orders, or bring them out of order."""
    for topic in ("orders", "bills"):
        broker.create_topic(topic)
    command = python_program("faststream", "-m", "faststream", "run", "--app-dir", str(APPS), "faststream_app:app")
    app = program("faststream", command, {"BOOTSTRAP": broker.bootstrap, "CLIENT": client})
    writer, orders = Writer(broker.bootstrap, "orders"), numbered("order", 0, 3000)
    bills = [f"bill of {order}" for order in orders]
    with Reader(broker.bootstrap, "bills") as reader:
        through_restarts(broker, writer, orders, lambda count: reader.wait_for_all(bills[:count]), app.crash)
        reader.wait_for_all(bills)
        assert list(dict.fromkeys(reader.values)) == bills
    assert app.stop() in (0, -15)
