"""The known name that a mistyped one is nearest to."""

from __future__ import annotations

from collections.abc import Iterable

MISSPELT = 0.85
"""How alike a long name of several words must be to be the same one misspelt: others share their words."""


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """`; did you mean X?` for the nearest of the known names, nothing when none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1, cutoff=likeness)
    return f"; did you mean {near[0]}?" if near else ""


def unknown_hint(names: Iterable[str], known: Iterable[str]) -> str:
    """The hint for the first of some names that is not known; empty when all are."""
    all_known = list(known)
    return next((did_you_mean(name, all_known) for name in names if name not in all_known), "")
