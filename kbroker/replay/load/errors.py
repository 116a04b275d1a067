"""What goes wrong with a load or a mirror as a whole: one sentence that says what to do."""

from __future__ import annotations

import re

_OURS = re.compile(
    r"\.errors\.LoadError: (.+)|(?:Option|DataLoss|TopicUnknown|Offsets|CorruptRecords|BrokerUnreachable|"
    r"RetriesExhausted|Delivery|BrokerAnswered|ConnectionLost|BrokerTimeout)Error: (.+)"
)


class LoadError(Exception):
    """A load, a restore or a mirror that cannot go on as it is.  The text is for the user."""


def explain(error: BaseException) -> str | None:
    """The sentence of an error of ours, out of what Spark made of what an executor raised."""
    found = _OURS.search(str(error))
    return (found[1] or found[2]).strip() if found else None
