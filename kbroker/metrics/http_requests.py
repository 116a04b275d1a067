"""Cuts HTTP requests out of what a connection sends, within limits: a target of 4 KiB, 16 KiB of header, and a body
only where a site takes some.

The bytes of all bodies that are held at one time are bounded, so that clients who prove nothing cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.metrics.http_messages import Request

if TYPE_CHECKING:
    import httptools

MAX_TARGET_BYTES = 4096
MAX_HEAD_BYTES = 16 * 1024
MOST_BODIES_BYTES = 64 << 20
_READ_HEADERS = frozenset(
    (
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"content-type",
        b"host",
        b"if-none-match",
        b"origin",
        b"sec-fetch-site",
        b"x-kbroker-client",
        b"x-kbroker-console",
    )
)
_ONCE = frozenset((b"authorization", b"host", b"content-type", b"origin", b"x-kbroker-client", b"x-kbroker-console"))
"""What says who asks, or where: a proxy in front may have judged another one than the last of several."""


class RefusedError(Exception):
    """A request that is answered with an error status before it is complete."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Bodies:
    """The bytes of bodies that all connections hold: those that come, wait (for a proof, too), and are answered."""

    def __init__(self, most_bytes: int = MOST_BODIES_BYTES) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0


class RequestReader:
    """One connection's requests: `take` gets each when it is complete; httptools calls the `on_*` methods.

    `body_limit`: how many bytes a body may have for a path.  What takes a request counts its body until the answer.
    """

    def __init__(self, take: Callable[[Request], None], body_limit: Callable[[str], int], bodies: Bodies) -> None:
        import httptools

        self._take = take
        self._body_limit = body_limit
        self._bodies = bodies
        self._parser: httptools.HttpRequestParser = httptools.HttpRequestParser(self)
        self._target = b""
        self._head_bytes = 0
        self._headers: dict[bytes, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0

    def feed(self, data: bytes) -> None:
        """What has come.  RefusedError."""
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except Exception as error:  # the parser wraps what its callbacks raise
            raise RefusedError(_status_of(error)) from None
        if self._head_bytes - self._body_bytes > MAX_HEAD_BYTES:
            raise RefusedError(431)

    def drop(self) -> None:
        """The connection ends with what is not complete."""
        self._bodies.held_bytes -= self._body_bytes
        self._body, self._body_bytes = [], 0

    # What httptools calls

    def on_message_begin(self) -> None:
        """A request begins."""
        self._target = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        """A part of its target."""
        self._target += url
        if len(self._target) > MAX_TARGET_BYTES:
            raise RefusedError(414)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers."""
        lowered = name.lower()
        if lowered in _ONCE and lowered in self._headers:
            raise RefusedError(400)
        if lowered in _READ_HEADERS:
            self._headers[lowered] = value.decode("latin-1").strip()
        elif lowered == b"content-length" and value.strip() != b"0":
            text = value.strip()
            if not text.isdigit() or int(text) > self._limit():
                raise RefusedError(413)

    def _limit(self) -> int:
        is_post = self._parser.get_method() == b"POST"
        return self._body_limit(self._target.decode("latin-1").partition("?")[0]) if is_post else 0

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        if self._body_bytes + len(body) > self._limit():
            raise RefusedError(413)
        if self._bodies.held_bytes + len(body) > self._bodies.most_bytes:
            raise RefusedError(503)
        self._body.append(body)
        self._body_bytes += len(body)
        self._bodies.held_bytes += len(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._head_bytes = 0
        body = b"".join(self._body)
        self._body, self._body_bytes = [], 0
        method = self._parser.get_method().decode("latin-1")
        path, _, query = self._target.decode("latin-1").partition("?")
        said = self._headers.get
        self._take(
            Request(
                method,
                path,
                query,
                said(b"accept", ""),
                "gzip" in said(b"accept-encoding", ""),
                bool(self._parser.should_keep_alive()),
                said(b"host", ""),
                said(b"origin", ""),
                said(b"sec-fetch-site", ""),
                said(b"if-none-match", ""),
                said(b"authorization", ""),
                content_type=said(b"content-type", ""),
                console=said(b"x-kbroker-console", ""),
                peer=said(b"x-kbroker-client", ""),
                body=body,
            )
        )


def _status_of(error: Exception) -> int:
    cause = error if isinstance(error, RefusedError) else error.__context__
    return cause.status if isinstance(cause, RefusedError) else 400
