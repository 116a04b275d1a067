"""Long lists and mappings in calls and their answers: they go ahead in portions, between which others have their turn.

await send(write, Call(7, "create_topics", (rows, False)), pace)    # Portion, Portion, …, Call
arrived.completed(call)                                             # the call as it was
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, TypeVar, cast

from kbroker.cluster.workers.messages import Ahead, Answered, Call, MessageError, Portion, encode

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace

MOST_ITEMS = 16
"""What is encoded and decoded in a tenth of a millisecond."""
_Carrier = TypeVar("_Carrier", Call, Answered)


async def send(write: Callable[[bytes], object], message: Call | Answered, pace: Pace) -> None:
    """Write a message and, before it, the portions of what is long in it."""
    values = _values(message)
    left: list[object] = []
    for value in values:
        if not isinstance(value, (list, dict)) or len(value) <= MOST_ITEMS:
            left.append(value)
            continue
        items = iter(value.items() if isinstance(value, dict) else value)
        while portion := tuple(islice(items, MOST_ITEMS)):
            write(encode(Portion(message.number, portion)))
            await pace
        left.append(Ahead(len(value), isinstance(value, dict)))
    write(encode(_with_values(message, left)))


class Portions:
    """Those that have come over a connection ahead of their messages."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[int, list[object]] = {}

    def put(self, portion: Portion) -> None:
        """Keep a portion until its message comes."""
        self._items.setdefault(portion.number, []).extend(portion.items)

    def completed(self, message: _Carrier) -> _Carrier:
        """The message with what came ahead of it.  MessageError where that is something else."""
        items = self._items.pop(message.number, [])
        position, values = 0, list(_values(message))
        for index, value in enumerate(values):
            if isinstance(value, Ahead):
                own = items[position : position + value.count]
                position += value.count
                values[index] = dict(cast("list[tuple[object, object]]", own)) if value.is_mapping else own
        if position != len(items):
            raise MessageError(f"{len(items)} items came ahead of a message of {position}")
        return cast("_Carrier", _with_values(message, values)) if items else message


def _values(message: Call | Answered) -> Sequence[object]:
    return message.arguments if isinstance(message, Call) else (message.value,)


def _with_values(message: Call | Answered, values: Sequence[object]) -> Call | Answered:
    if isinstance(message, Call):
        return replace(message, arguments=tuple(values))
    return replace(message, value=values[0])
