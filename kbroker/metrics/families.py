"""Metrics as rows of a table, and their values.

One row per family, `name|type|labels|meaning`; an indented line continues the row above it.  Values come as a mapping
from a family's name to its value, or to values by label values; a family that is missing in it has no samples.  A fifth
column says `0` where 0 stands for a missing value, or `rows.column`: the values are that column of rows of a snapshot,
whose first columns are the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Labels = tuple[str, ...]
Labelled = Mapping[Labels, float]
Values = Mapping[str, float | Labelled]
#: As a source: 0 stands for a missing value.
ZERO = "0"


class Family(NamedTuple):
    """A metric: counters get `_total` when they are written."""

    name: str
    kind: str
    labels: Labels
    text: str
    source: str = ""


def table(rows: str) -> tuple[Family, ...]:
    """The families of a table."""
    return tuple(
        Family(name, kind, tuple(labels.split(",")) if labels else (), *others)
        for name, kind, labels, *others in (line.split("|") for line in rows.strip().replace("\n    ", "").split("\n"))
    )


def number(values: Values, name: str) -> float:
    """The value of a family without labels; 0 while there is none."""
    return by_labels(values, name).get((), 0)


def by_labels(values: Values, name: str) -> Labelled:
    """The values of a family; of one without labels by no label, of one that is missing none."""
    value = values.get(name, {})
    return value if isinstance(value, Mapping) else {(): value}


def by_label(values: Values, name: str) -> dict[str, float]:
    """The values of a family by its first label."""
    return {labels[0]: value for labels, value in by_labels(values, name).items()}
