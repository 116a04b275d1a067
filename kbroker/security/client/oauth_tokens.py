"""Bearer tokens of a client: from a file, or from an issuer's token endpoint (RFC 6749, client credentials).

A token is kept until most of its life is over.  All of it may block.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kbroker.authorities import trusting

ANSWER_SECONDS = 10.0
MOST_ANSWER_BYTES = 1 << 20
# Of a token's life, after which the next one is asked for (`sasl.login.refresh.window.factor`).
KEPT_SHARE = 0.8
SCHEMES = ("http", "https", "file")


class OAuthTokenError(OSError):
    """There is no token.  The text has no secret."""


class TokenSource(Protocol):
    """Where tokens come from."""

    def token(self) -> str:
        """One that has not expired.  OAuthTokenError."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file, read for each login, as something else renews it."""

    path: Path

    def token(self) -> str:
        """See `TokenSource`."""
        try:
            return self.path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OAuthTokenError(f"{self.path} holds no token that can be read: {error}") from None


@dataclass(slots=True)
class TokenEndpoint:
    """An issuer that gives tokens for a client's id and secret."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    now: Callable[[], float] = time.monotonic
    _token: str = field(default="", init=False, repr=False)
    _until: float = field(default=0.0, init=False)

    def token(self) -> str:
        """See `TokenSource`."""
        if not self._token or self.now() >= self._until:
            began = self.now()
            self._token, life = self._ask()
            self._until = began + life * KEPT_SHARE
        return self._token

    def _ask(self) -> tuple[str, float]:
        # A broker that asks for no tokens starts without them.
        import urllib.error
        import urllib.parse
        import urllib.request

        form = {"grant_type": "client_credentials", **self.parameters}
        if self.scope:
            form["scope"] = self.scope
        named = f"{urllib.parse.quote(self.client_id)}:{urllib.parse.quote(self.client_secret)}"
        request = urllib.request.Request(
            self.url,
            urllib.parse.urlencode(form).encode(),
            {
                "Authorization": "Basic " + base64.b64encode(named.encode()).decode(),
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=trusting()) as answer:
                body = answer.read(MOST_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            error.close()
            raise OAuthTokenError(f"{self.url} gives no token: HTTP status {error.code}") from None
        except (OSError, ValueError) as error:
            raise OAuthTokenError(f"{self.url} gives no token: {getattr(error, 'reason', error)}") from None
        try:
            said = json.loads(body)
            return str(said["access_token"]), float(said.get("expires_in", 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise OAuthTokenError(f"{self.url} gives no token: its answer has no access_token") from None
