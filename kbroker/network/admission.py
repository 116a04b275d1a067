"""The verdict on a connection that was just accepted, when connections come faster than their rate limit allows."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    """What becomes of a connection."""

    SERVED = "served"
    DELAYED = "delayed"
    REFUSED = "refused"


class Admission(NamedTuple):
    """A verdict, and after how long it is carried out: served, or closed."""

    verdict: Verdict
    delay_ms: int = 0
