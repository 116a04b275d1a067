"""The public keys of an issuer of tokens (JWKS), from a file or a URL, read again in the background.

The loop never waits for them: a thread reads, and until new keys are there the old ones count.  A reading that fails is
repeated after a pause that doubles.  A token with a key id that is not known asks for a reading soon, once in a while.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.authorities import trusting
from kbroker.backoff import ExponentialBackoff
from kbroker.outage import Outage

if TYPE_CHECKING:
    from joserfc.jwk import Key

logger = logging.getLogger("kbroker.security")

TIMEOUT_SECONDS = 10
MOST_BYTES = 1 << 20
UNKNOWN_KEY_PAUSE_SECONDS = 10.0
_PUBLIC = frozenset({"RSA", "EC", "OKP"})


class JwksError(Exception):
    """Keys that cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class JwksPlan:
    """Where keys are and when they are read: `sasl.oauthbearer.jwks.endpoint.*`."""

    url: str
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000

    @property
    def path(self) -> Path | None:
        """The file, where the URL is of one."""
        parts = urllib.parse.urlsplit(self.url)
        return Path(urllib.parse.unquote(parts.path)) if parts.scheme == "file" else None


def read_url(plan: JwksPlan) -> bytes:
    """What is there now.  JwksError.  Waits."""
    import http.client  # Much code, for those who have issuers.

    path = plan.path
    try:
        if path is not None:
            content = path.read_bytes()
        else:
            # A broker without such a listener starts without them.
            import urllib.error
            import urllib.request

            try:
                with urllib.request.urlopen(plan.url, timeout=TIMEOUT_SECONDS, context=trusting()) as answer:
                    content = answer.read(MOST_BYTES + 1)
            except urllib.error.HTTPError as error:
                error.close()
                raise
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise JwksError(f"the keys at {plan.url} cannot be read: {error}") from None
    if len(content) > MOST_BYTES:
        raise JwksError(f"the keys at {plan.url} are more than {MOST_BYTES} bytes")
    return content


def parse_keys(plan: JwksPlan, content: bytes) -> list[Key]:
    """The public keys of a key set; others are left out.  JwksError where there is none."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    try:
        rows = json.loads(content)["keys"]
        rows = [row for row in rows if isinstance(row, dict) and row.get("kty") in _PUBLIC]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise JwksError(f"what is at {plan.url} is no JSON Web Key Set") from None
    keys: list[Key] = []
    for row in rows:
        try:
            keys.append(JWKRegistry.import_key(row))
        except (JoseError, ValueError, TypeError, KeyError):
            logger.warning("a key at %s is left out: it cannot be read", plan.url)
    if not keys:
        raise JwksError(f"there is no public key at {plan.url}")
    return keys


class Jwks:
    """The keys of one issuer.  `read` waits, and is called by a thread of `executor` (None: the loop's own)."""

    def __init__(
        self,
        plan: JwksPlan,
        read: Callable[[JwksPlan], bytes] = read_url,
        executor: Executor | None = None,
    ) -> None:
        self._plan = plan
        self._read = read
        self._executor = executor
        self._keys: list[Key] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._expedited = float("-inf")
        self._outage = Outage(logger)
        self.refreshed_count = 0
        self.failed_count = 0

    def load(self) -> None:
        """Read them now, in the caller's thread.  JwksError."""
        self._keys = parse_keys(self._plan, self._read(self._plan))

    async def start(self) -> None:
        """Read them, and again and again from now on.  JwksError where a file has none; a URL that does not answer
        yet is asked again, and until then no token is accepted."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._loop.run_in_executor(self._executor, self.load)
        except JwksError as error:
            if self._plan.path is not None:
                raise
            self._later(self._complain(error))
        else:
            self._later(self._plan.refresh_ms)

    def close(self) -> None:
        """Read them no more."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def candidates(self, key_id: str | None, key_type: str) -> Sequence[Key]:
        """Keys of that type and id; without an id all of that type."""
        fitting = [key for key in self._keys if key.key_type == key_type]
        if key_id is None:
            return fitting
        found = [key for key in fitting if key.get("kid") == key_id]
        if not found:
            self._expedite()
        return found

    def _expedite(self) -> None:
        loop = self._loop
        if loop is None or self._task is not None or loop.time() < self._expedited + UNKNOWN_KEY_PAUSE_SECONDS:
            return
        self._expedited = loop.time()
        self._begin()

    def _later(self, delay_ms: int) -> None:
        if self._loop is not None:
            self._timer = self._loop.call_later(delay_ms / 1000, self._begin)

    def _begin(self) -> None:
        if self._loop is not None and self._task is None:
            if self._timer is not None:
                self._timer.cancel()
            self._task = self._loop.create_task(self._refresh(self._loop))

    async def _refresh(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await loop.run_in_executor(self._executor, self.load)
        except JwksError as error:
            delay_ms = self._complain(error)
        else:
            self.refreshed_count += 1
            self._outage.over("the keys for tokens are read again")
            self._failures = 0
            delay_ms = self._plan.refresh_ms
        finally:
            self._task = None
        self._later(delay_ms)

    def _complain(self, error: JwksError) -> int:
        """The milliseconds until they are asked for again."""
        self.failed_count += 1
        self._failures += 1
        self._outage.failed("%s; tokens are checked with the keys that were read before", error)
        backoff = ExponentialBackoff(self._plan.backoff_ms, self._plan.backoff_max_ms)
        return int(backoff.backoff(self._failures - 1))
