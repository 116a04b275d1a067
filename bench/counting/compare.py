"""Figures beside those that the repository keeps: what has grown, what has shrunk, what is not comparable here."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Figures = Mapping[str, Mapping[str, float]]
"""By row, then by what is counted."""

TOLERANCES: Mapping[str, tuple[float, float]] = {
    "instructions": (0.02, 0),
    "allocations": (0.01, 0.5),
    "system calls": (0.02, 0.05),
    "modules": (0, 0),
    "files opened": (0, 3),
    "private KiB": (0.03, 0),
    "wake-ups": (0.1, 10),
    "bytes": (0.05, 16),
}
"""By what is counted: the share and the number by which a figure may be larger than the one that is kept."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure that is not what is kept."""

    row: str
    counted: str
    kept: float
    found: float

    @property
    def has_grown(self) -> bool:
        """Whether it is worse."""
        return self.found > self.kept

    def __str__(self) -> str:
        share = f"{self.found / self.kept - 1:+.1%}" if self.kept else "new"
        return f"{self.row}: {self.found:,g} {self.counted}, {self.kept:,g} are kept ({share})"


def environment() -> dict[str, str]:
    """What figures depend on besides the code."""
    return {"python": ".".join(platform.python_version_tuple()[:2]), "machine": platform.machine()}


def changes(kept: Figures, found: Figures) -> Iterator[Change]:
    """What lies outside of its tolerance, of the rows that were counted; a row that is not kept has grown from 0."""
    for row, counts in found.items():
        for counted, value in counts.items():
            before = kept.get(row, {}).get(counted, 0.0)
            share, number = TOLERANCES[counted]
            if abs(value - before) > before * share + number:
                yield Change(row, counted, before, value)
