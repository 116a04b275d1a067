"""What an HTTP request and its answer are for those who serve one behind the metrics listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Request(NamedTuple):
    """A parsed head.  Headers that were not sent are empty."""

    method: str
    path: str
    query: str
    accept: str
    gzip: bool
    keep_alive: bool
    host: str = ""
    origin: str = ""
    fetch_site: str = ""
    """Sec-Fetch-Site: where a browser's request comes from, `same-origin`, `same-site`, `cross-site` or `none`."""
    known_tag: str = ""
    """If-None-Match."""

    @property
    def is_read(self) -> bool:
        """Whether it asks for no change."""
        return self.method in ("GET", "HEAD")


class Answer(NamedTuple):
    """`headers` are added to those of every answer, and stand for one of the same name."""

    status: int
    body: bytes
    content_type: str = PLAIN
    headers: Mapping[str, str] = _NO_HEADERS
    gzipped: bytes | None = None
    """The body compressed, where it is at hand."""


Page = Callable[[Sequence[str]], Awaitable[tuple[int, object]]]
"""Answers with a status and a value, which becomes JSON; it is given the parts of the path behind its name."""
Pages = Mapping[str, Page]

Site = Callable[[Request], Awaitable[Answer]]
"""Answers everything under its name."""
Sites = Mapping[str, Site]
