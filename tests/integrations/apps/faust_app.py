"""An application of faust: `faust -A faust_app worker`; BOOTSTRAP names the broker."""

from __future__ import annotations

import os

import faust

app = faust.App("billing", broker=f"kafka://{os.environ['BOOTSTRAP']}", web_enabled=False, topic_partitions=1)
orders = app.topic("orders", value_type=str, value_serializer="raw")
bills = app.topic("bills", value_type=str, value_serializer="raw")


@app.agent(orders)
async def bill(stream):  # type: ignore[no-untyped-def]
    """Each order has its bill."""
    async for order in stream:
        await bills.send(value=f"bill of {order}")
