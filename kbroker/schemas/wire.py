"""The classes of Kafka's messages by their names: `wire.ProduceRequest`, `wire.ProduceRequest.TopicProduceData`.

A class is made of its table when it is first asked for.  `wire.pyi`, which `python -m kbroker.schemas.wire_stub` writes
from the same tables, tells type checkers the fields.
"""

from __future__ import annotations

from typing import Any

from kbroker.schemas import message


def __getattr__(name: str) -> Any:
    try:
        found = message(name)
    except KeyError:
        raise AttributeError(f"Kafka has no message {name}") from None
    globals()[name] = found
    return found
