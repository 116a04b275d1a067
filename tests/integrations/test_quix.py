"""An application of Quix Streams with state and exactly-once processing."""

from __future__ import annotations

from tests.broker_process import BrokerProcess
from tests.integrations.conftest import StartProgram
from tests.integrations.programs import APPS, python_program
from tests.integrations.topics import Reader, Writer, numbered, through_restarts


def test_orders_are_counted_once_though_broker_and_application_die(
    broker: BrokerProcess, program: StartProgram
) -> None:
    """A restart of the broker or of the application would lose orders, count them twice, or lose the count."""
    for topic in ("orders", "bills"):
        broker.create_topic(topic)
    app = program("quix", python_program("quixstreams", str(APPS / "quix_app.py")), {"BOOTSTRAP": broker.bootstrap})
    writer, orders = Writer(broker.bootstrap, "orders", key="customer"), numbered("order", 0, 3000)
    bills = [f"{count} {order}" for count, order in enumerate(orders, 1)]
    with Reader(broker.bootstrap, "bills") as reader:
        through_restarts(broker, writer, orders, reader.wait_for, app.crash)
        reader.assert_exactly(bills)
    assert app.stop() == 0
