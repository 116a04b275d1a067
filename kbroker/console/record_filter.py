"""Which records of a range a viewer wants: those with a text, a key, or for which an expression holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.console.expressions import ExpressionError, Test, parse
from kbroker.console.parameters import BadParameterError

if TYPE_CHECKING:
    from kbroker.console.decoded_record import DecodedRecord
    from kbroker.console.parameters import Parameters


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """`needle`: a text in small letters, somewhere in a record; `key`: the whole key.  Empty and None ask for
    nothing."""

    needle: str = ""
    key: str | None = None
    test: Test | None = None

    @property
    def is_open(self) -> bool:
        """Whether it lets every record through."""
        return not self.needle and self.key is None and self.test is None

    def holds(self, looked: DecodedRecord) -> bool:
        """Whether the record is wanted."""
        if self.key is not None and not looked.has_key(self.key):
            return False
        if self.needle and not looked.contains(self.needle):
            return False
        return self.test is None or self.test(looked)


def filter_of(parameters: Parameters) -> RecordFilter:
    """The filter that a request's `q`, `key` and `filter` ask for; it serves all partitions of the request.

    BadParameterError."""
    key = parameters.text("key", "")
    expression = parameters.text("filter", "").strip()
    try:
        test = parse(expression) if expression else None
    except ExpressionError as error:
        raise BadParameterError(f"filter: {error}") from None
    return RecordFilter(parameters.text("q", "").lower(), key or None, test)
