"""Which records of a range a viewer wants: those with a text, a key, or for which an expression holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.console.expressions import ExpressionError, Looked, Test, parse
from kbroker.console.parameters import BadParameterError

if TYPE_CHECKING:
    from kbroker.console.parameters import Parameters
    from kbroker.records.batch import Record


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """`needle`: a text in small letters, somewhere in a record; `key`: the whole key.  Empty and None ask for
    nothing."""

    needle: bytes = b""
    key: bytes | None = None
    test: Test | None = None
    partition: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it lets every record through."""
        return not self.needle and self.key is None and self.test is None

    def holds(self, record: Record) -> bool:
        """Whether the record is wanted."""
        if self.key is not None and record.key != self.key:
            return False
        if self.needle and not any(self.needle in part.lower() for part in parts_of(record)):
            return False
        return self.test is None or self.test(Looked(record, self.partition))


def filter_of(parameters: Parameters, partition: int) -> RecordFilter:
    """What `q`, `key` and `filter` ask for.  BadParameterError."""
    key = parameters.text("key", "")
    expression = parameters.text("filter", "").strip()
    try:
        test = parse(expression) if expression else None
    except ExpressionError as error:
        raise BadParameterError(f"filter: {error}") from None
    return RecordFilter(parameters.text("q", "").lower().encode(), key.encode() if key else None, test, partition)


def parts_of(record: Record) -> Iterator[bytes]:
    """Key, value, names and values of headers, as far as they are there."""
    yield from (part for part in (record.key, record.value) if part)
    for name, value in record.headers:
        yield name.encode("utf-8", "replace")
        if value:
            yield value
