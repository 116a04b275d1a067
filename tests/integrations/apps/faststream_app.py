"""An application of FastStream: `faststream run faststream_app:app`; BOOTSTRAP names the broker, CLIENT the library."""

from __future__ import annotations

import os

from faststream import AckPolicy, FastStream

if os.environ["CLIENT"] == "confluent":
    from faststream.confluent import KafkaBroker
else:
    from faststream.kafka import KafkaBroker

broker = KafkaBroker(os.environ["BOOTSTRAP"], enable_idempotence=True)
app = FastStream(broker)


@broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)  # type: ignore[untyped-decorator]
@broker.publisher("bills")  # type: ignore[untyped-decorator]
async def bill(order: str) -> str:
    """Each order has its bill; the offset is committed once that is written."""
    return f"bill of {order}"
