"""The consoles of the workers of a host, each under its number: `/console/2/` is that of worker 2.

The supervisor passes requests on as they are, with the client's address, over a socket that it alone reaches.  The
worker proves the viewer again, and guards its pages by the same names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from kbroker.metrics.http_messages import Answer
from kbroker.supervision.worker_http import fetch
from kbroker.supervision.worker_life import WorkerLife, WorkerState

if TYPE_CHECKING:
    from kbroker.cluster.workers.worker_slot import WorkerSlot
    from kbroker.metrics.http_messages import Request

CONSOLE_SECONDS = 60.0
"""As long as the longest change may take."""
ROOT = "/console"
_KEPT = (
    "cache-control",
    "content-disposition",
    "content-security-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "etag",
    "referrer-policy",
    "vary",
    "www-authenticate",
    "x-content-type-options",
    "x-frame-options",
    "x-more",
)


class WorkerConsoles:
    """A site of the supervisor's pages; `lives` and `slots` are those of the workers, by number."""

    def __init__(self, slots: Mapping[int, WorkerSlot], lives: Mapping[int, WorkerLife]) -> None:
        self._slots = slots
        self._lives = lives

    async def __call__(self, request: Request) -> Answer:
        number, _, rest = unquote(request.path).removeprefix(ROOT).removeprefix("/").partition("/")
        if not number:
            ready = [each for each, life in self._lives.items() if life.state is WorkerState.READY]
            return Answer(302, b"", headers={"Location": f"{ROOT}/{min(ready, default=1)}/"})
        if not (number.isascii() and number.isdigit() and int(number) in self._slots):
            return Answer(404, f"there is no worker {number[:20]}; there are 1 to {len(self._slots)}\n".encode())
        if request.path == f"{ROOT}/{number}":
            return Answer(302, b"", headers={"Location": f"{ROOT}/{number}/"})
        return await self._pass_on(int(number), rest, request)

    async def _pass_on(self, number: int, rest: str, request: Request) -> Answer:
        path = f"{ROOT}/{quote(rest)}" + (f"?{request.query}" if request.query else "")
        try:
            answer = await fetch(
                self._slots[number].metrics_socket,
                path,
                request.accept,
                request.authorization,
                method=request.method,
                host=request.host or "localhost",
                headers={
                    "Content-Type": request.content_type,
                    "If-None-Match": request.known_tag,
                    "Origin": request.origin,
                    "Sec-Fetch-Site": request.fetch_site,
                    "X-Kbroker-Client": request.peer,
                    "X-Kbroker-Console": request.console,
                },
                body=request.body,
                seconds=CONSOLE_SECONDS,
            )
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            text = f'{{"error": "worker {number} does not answer: {type(error).__name__}"}}'
            return Answer(503, text.encode(), "application/json")
        headers = {name.title(): value for name, value in answer.headers.items() if name in _KEPT}
        return Answer(answer.status, answer.body, answer.content_type, headers)
