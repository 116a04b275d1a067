"""What goes wrong with a trace as a whole: always one sentence that says what to do."""

from __future__ import annotations

import re

_OURS = re.compile(r"(?:Trace|Replay|Option|LogDirectory|DataLoss|TopicUnknown|Offsets)Error: (.+)")


class TraceError(Exception):
    """A trace, mapping or output that cannot be used as it is.  The text is for the user."""


def explain(error: BaseException) -> str | None:
    """The sentence of an error of ours that an executor or a data source raised, out of what Spark made of it."""
    found = _OURS.search(str(error))
    return found[1].strip() if found else None
