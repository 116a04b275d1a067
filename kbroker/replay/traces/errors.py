"""What goes wrong with a trace as a whole: always one sentence that says what to do."""

from __future__ import annotations

import re


class TraceError(Exception):
    """A trace, mapping or output that cannot be used as it is.  The text is for the user."""


def explain(error: BaseException) -> str | None:
    """The sentence of a `TraceError` that an executor raised, out of what Spark made of it; None when there is none."""
    found = re.search(r"TraceError: (.+)", str(error))
    return found[1].strip() if found else None
