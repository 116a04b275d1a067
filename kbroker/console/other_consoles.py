"""What the consoles of other clusters say of these: asked on threads, few at a time, and remembered for a moment.

What a console answers is untrusted: it becomes numbers and short texts.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kbroker.console.cluster_summary import ClusterSummary
from kbroker.console.guard import is_loopback
from kbroker.registry.opener import direct_opener

if TYPE_CHECKING:
    import urllib.error

ANSWER_SECONDS = 4.0
MOST_ANSWER_BYTES = 64 << 10
THREADS = 4
FRESH_SECONDS, AWAY_SECONDS = 2.0, 10.0
"""How long an answer is kept, and how long a console that gave none is left alone."""
MOST_KEPT = 256
MOST_TEXT = 200
UNPROVED = 401

Login = tuple[str, str] | None
Said = ClusterSummary | str
"""A summary, or why there is none."""


class OtherConsoles:
    """Asks, few at a time and each at most once in a while; on the loop, which never waits."""

    def __init__(
        self, ask: Callable[[str, Login], Said] | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask or ask_console
        self._now = now
        self._threads: ThreadPoolExecutor | None = None
        self._kept: OrderedDict[tuple[str, Login], tuple[float, Said]] = OrderedDict()
        self._asked: dict[tuple[str, Login], asyncio.Task[Said]] = {}

    async def said_by(self, address: str, login: Login) -> Said:
        """Of now or of a moment ago."""
        key = (address, login)
        until, said = self._kept.get(key, (0.0, ""))
        if self._now() < until:
            return said
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.get_running_loop().create_task(self._look(key))
            task.add_done_callback(lambda _: self._asked.pop(key))
        # One viewer who leaves does not end it for the others.
        try:
            return await asyncio.shield(task)
        finally:
            del task  # It keeps its error, and the error this frame.

    async def _look(self, key: tuple[str, Login]) -> Said:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="clusters")
        said = await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, *key)
        self._kept[key] = (self._now() + (AWAY_SECONDS if isinstance(said, str) else FRESH_SECONDS), said)
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return said


def proof_for(address: str, login: Login) -> str:
    """The header Authorization for a console: a viewer's own name and password, never where others could read them."""
    place = urlsplit(address)
    if login is None or not (place.scheme == "https" or is_loopback(place.hostname or "")):
        return ""
    return f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"


def ask_console(address: str, login: Login) -> Said:
    """What a console says of its cluster, or why it says nothing.  It waits."""
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"{address.rstrip('/')}/api/cluster")
    proof = proof_for(address, login)
    if proof:
        request.add_header("Authorization", proof)
    try:
        with direct_opener().open(request, timeout=ANSWER_SECONDS) as answer:
            body = answer.read(MOST_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"It does not answer: {getattr(error, 'reason', None) or error or type(error).__name__}."[:MOST_TEXT]
    return read_summary(body)


def _refused(error: urllib.error.HTTPError) -> str:
    if error.code == UNPROVED:
        return "It wants to know who asks: log in there."
    try:
        said = str(json.loads(error.read(MOST_ANSWER_BYTES))["error"])[:MOST_TEXT]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        said = ""
    return f"It answers with HTTP status {error.code}{': ' if said else ''}{said}"


def read_summary(body: bytes) -> Said:
    """The summary that an answer is, with texts cut and numbers that are numbers."""
    try:
        plain = json.loads(body) if len(body) <= MOST_ANSWER_BYTES else None
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        return "What answers there is no console."
    values: dict[str, object] = {}
    for field in fields(ClusterSummary):
        value, is_text = plain.get(field.name), field.type == "str"
        if is_text != isinstance(value, str) or (
            not is_text and (isinstance(value, bool) or not isinstance(value, int))
        ):
            return "What answers there is no console of this version or a later one."
        values[field.name] = value[:MOST_TEXT] if isinstance(value, str) else value
    return ClusterSummary(**values)  # type: ignore[arg-type]
