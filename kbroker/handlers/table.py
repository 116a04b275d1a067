"""The row type of the table that maps an API key to its handler.

Every `handlers/<family>.py` ends with `HANDLERS: tuple[Handler, ...]`; dispatch joins them into the one table of
the broker.  What ApiVersions advertises is derived from the same rows, so nothing can be advertised that is not
served.  Produce is the exception: it is advertised from 0 because older librdkafka otherwise turns compression
off without a word (the row says so with `advertised_min_version`).

Invariant: one row per API key; `min_version <= max_version`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kbroker.protocol.api import ApiKey, ApiRange

if TYPE_CHECKING:
    from kbroker._fast.net.direct import DirectAnswers
    from kbroker._fast.net.pending import Pending
    from kbroker._fast.net.route import NoResponse
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

    # The request is the class of its API in `wire`.
    Handled = Struct | Pending | Awaitable[Struct | Pending | NoResponse | None] | NoResponse | None
    HandlerFunction = Callable[[RequestContext, Any], Handled]


@dataclass(frozen=True, slots=True)
class Handler:
    """`handle(ctx, request)` serves `api_key` from `min_version` to `max_version`, both included.

    `handle` is a plain function that returns the answer, a `Pending` that will give it, or None when it has closed the
    connection; or a coroutine function.  With `cacheable` it may set `ctx.cacheable`: equal requests to the same
    address then get the same answer, without a call of `handle`, until the cluster's metadata change, or as long as
    `ctx.renewal` says if it is set.  `direct` sees each request first, and may answer it from its bytes.
    With `keeps_frame` the request's frame is in `ctx.frame`.
    """

    api_key: int
    min_version: int
    max_version: int
    handle: HandlerFunction
    advertised_min_version: int | None = None
    cacheable: bool = False
    direct: DirectAnswers | None = None
    keeps_frame: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.min_version <= self.max_version:
            raise ValueError(f"API {self.api_key}: versions {self.min_version} to {self.max_version} are no range")

    def serves(self, version: int) -> bool:
        """Whether a request of this version may be handed over."""
        return self.min_version <= version <= self.max_version


def advertised_ranges(handlers: Iterable[Handler]) -> tuple[ApiRange, ...]:
    """The ranges for ApiVersions, by API key.  ValueError when two rows claim the same key."""
    ranges: dict[int, ApiRange] = {}
    for row in handlers:
        key = int(row.api_key)
        if key in ranges:
            raise ValueError(f"two handlers claim API {key}")
        low = row.min_version if row.advertised_min_version is None else row.advertised_min_version
        ranges[key] = ApiRange(key, low, row.max_version)
    return tuple(ranges[key] for key in sorted(ranges))


def narrowed(handlers: Iterable[Handler], ranges: Iterable[str]) -> tuple[Handler, ...]:
    """The rows with the versions that `ranges` leave, each `Produce:3-13`, `Produce:3-` or `Produce:13`.

    ApiVersions cannot be narrowed: every client asks it first.  ValueError for a text that names no API served here, or
    no version of it.
    """
    rows = {ApiKey(row.api_key).message_name: row for row in handlers}
    for text in ranges:
        match = re.fullmatch(r"\s*(\w+):(\d+)(-(\d*))?\s*", text)
        row = rows.get(match.group(1)) if match is not None else None
        if match is None or row is None or row.api_key == ApiKey.API_VERSIONS:
            raise ValueError(f"kbroker.api.versions: {text!r} is no API and range of versions, such as Produce:3-13")
        low = int(match.group(2))
        high = low if match.group(3) is None else int(match.group(4) or row.max_version)
        low, high = max(low, row.min_version), min(high, row.max_version)
        if low > high:
            raise ValueError(f"kbroker.api.versions: {text!r} leaves none of {row.min_version} to {row.max_version}")
        advertised = row.advertised_min_version if low == row.min_version else None
        rows[match.group(1)] = replace(row, min_version=low, max_version=high, advertised_min_version=advertised)
    return tuple(rows.values())
