"""An application of Quix Streams that numbers the orders of each customer, exactly once; BOOTSTRAP names the broker."""

from __future__ import annotations

import os
from typing import Any

from quixstreams import Application

app = Application(
    broker_address=os.environ["BOOTSTRAP"],
    consumer_group="billing",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.5,
)
orders = app.topic("orders", key_deserializer="str", value_deserializer="str")
bills = app.topic("bills", key_serializer="str", value_serializer="str")


def number(order: str, state: Any) -> str:
    """The bill of an order has the number of orders so far."""
    count = state.get("count", 0) + 1
    state.set("count", count)
    return f"{count} {order}"


app.dataframe(orders).apply(number, stateful=True).to_topic(bills)

if __name__ == "__main__":
    app.run()
