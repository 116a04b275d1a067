"""The origin of a setting that was given at start, as part of its documentation: DescribeConfigs has no field for it.

Kafka's protocol has one source for all static settings. kbroker therefore appends the origin (server.properties,
environment or command line) to the text that describes the setting, where `kbroker settings show` reads it.
"""

from __future__ import annotations

import re

_ORIGIN = re.compile(r"\(Set by (?P<origin>.+)\.\)$")


def with_origin(doc: str, origin: str) -> str:
    """A setting's documentation with its origin behind it."""
    return f"{doc} (Set by {origin}.)".lstrip()


def origin_in(doc: str | None) -> str | None:
    """The origin in a documentation; None in another broker's."""
    found = _ORIGIN.search(doc or "")
    return found["origin"] if found else None
