"""What goes wrong with a trace as a whole: always one sentence that says what to do."""

from __future__ import annotations

import re

_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_OURS = re.compile(r"(?:Trace|Replay|Option|LogDirectory|DataLoss|TopicUnknown|Offsets)Error: (.+)")


class TraceError(Exception):
    """A trace, mapping or output that cannot be used as it is.  The text is for the user."""


def explain(error: BaseException) -> str | None:
    """The sentence of an error of ours that an executor or a data source raised, out of what Spark made of it."""
    found = _OURS.search(str(error))
    return found[1].strip() if found else None


def reason_of(error: BaseException) -> str:
    """One line about what Spark raised: a sentence of ours if there is one, else the cause of all causes."""
    causes = _CAUSE.findall(str(error))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return explain(error) or str([*lines[:1], type(error).__name__, *causes][-1 if causes else 0])
