"""What a viewer's query asks for, within bounds, and one page of many rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar
from urllib.parse import parse_qsl

MAX_FIELDS = 20
MAX_TEXT = 1000
PAGE_ROWS = 50
MAX_PAGE_ROWS = 200
INT64_MAX = (1 << 63) - 1

Row = TypeVar("Row")
Key = Callable[[Row], int | float | str]


class BadParameterError(ValueError):
    """A parameter that is missing, or no value of its kind; the text is for a person."""


class NotShownError(Exception):
    """What the query asks for is not shown, or not just now; the text is for a person."""


class NotThereError(LookupError):
    """What the query names does not exist; the text is for a person."""


class Parameters:
    """The fields of a query.  Each reader raises BadParameterError."""

    def __init__(self, query: str) -> None:
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        except ValueError as error:
            raise BadParameterError(f"the query cannot be read: {error}") from None
        self._fields = dict(pairs)

    def text(self, name: str, default: str | None = None) -> str:
        """Any text; without a default it must be there."""
        value = self._fields.get(name, default)
        if value is None:
            raise BadParameterError(f"{name} is missing")
        if len(value) > MAX_TEXT:
            raise BadParameterError(f"{name} has more than {MAX_TEXT} characters")
        return value

    def number(self, name: str, default: int | None = None, low: int = 0, high: int = INT64_MAX) -> int:
        """A whole number from `low` to `high`."""
        value = self._fields.get(name)
        if value is None or value == "":
            if default is None:
                raise BadParameterError(f"{name} is missing")
            return default
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and low <= int(value) <= high):
            raise BadParameterError(f"{name} must be a whole number from {low} to {high}")
        return int(value)

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of `choices`; the first where it is not there."""
        value = self._fields.get(name) or choices[0]
        if value not in choices:
            raise BadParameterError(f"{name} must be one of {', '.join(choices)}")
        return value


def keys_of(*names: str) -> dict[str, Key[object]]:
    """The columns of rows that have attributes of these names."""
    return {name: attrgetter(name) for name in names}


@dataclass(frozen=True, slots=True)
class View:
    """Which rows of a table: those that contain `search`, in the order of `sort`, from `start` on."""

    search: str
    sort: str
    descending: bool
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class PageOf(Generic[Row]):
    """`rows` of a table, the first of which is number `start` of `matching`; the table has `total`."""

    total: int
    matching: int
    start: int
    sort: str
    descending: bool
    rows: Sequence[Row]


def view_of(parameters: Parameters, keys: Mapping[str, Key[Row]]) -> View:
    """What `q`, `sort` (a column, with `-` in front for descending), `start` and `count` ask for."""
    first = next(iter(keys))
    sort = parameters.text("sort", first)
    column = sort.removeprefix("-")
    if column not in keys:
        raise BadParameterError(f"sort must be one of {', '.join(keys)}, with - in front for descending")
    return View(
        parameters.text("q", "").strip().lower(),
        column,
        sort.startswith("-"),
        parameters.number("start", 0),
        parameters.number("count", PAGE_ROWS, 1, MAX_PAGE_ROWS),
    )


def page_of(rows: Sequence[Row], view: View, keys: Mapping[str, Key[Row]], text: Callable[[Row], str]) -> PageOf[Row]:
    """The page that a view asks for.  Pure, for a thread.  `text` is what is searched; rows come in order of it."""
    matching = [row for row in rows if view.search in text(row).lower()] if view.search else list(rows)
    matching.sort(key=keys[view.sort], reverse=view.descending)
    start = view.start if view.start < len(matching) else 0
    return PageOf(len(rows), len(matching), start, view.sort, view.descending, matching[start : start + view.count])
