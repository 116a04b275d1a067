"""What the mechanisms of SASL have in common: machines of bytes, without a socket and without a clock.

A server's machine gets the client's tokens and gives its own, until `outcome` says who the client is.  A client's
machine begins with `first`, and gets the server's tokens until it is `complete`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Protocol


class SaslError(Exception):
    """An exchange that has failed.  Nothing of what the other end sent is in the message."""


class AuthenticationRefusedError(SaslError):
    """A refusal with words for the client, which are Kafka's."""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Who the client is.

    `expires_ms`: when its credential ends, in milliseconds since 1970; None: never.  `by_token`: it has shown a
    delegation token (a Kafka principal's `tokenAuthenticated`).
    """

    name: str
    expires_ms: int | None = None
    by_token: bool = False


class ServerMechanism(Protocol):
    """A server's end."""

    outcome: Authenticated | None
    """Who the client is; None until that is proved."""

    def prepare(self, token: bytes) -> Coroutine[object, None, None] | None:
        """What has to be awaited before `evaluate`, so that that takes the loop no time; None: nothing."""
        return None

    def evaluate(self, token: bytes) -> bytes:
        """The answer to the client's next token.  SaslError where it proves nothing; no token may follow that."""


class ClientMechanism(Protocol):
    """A client's end."""

    name: str
    """The mechanism, as SaslHandshake names it."""
    complete: bool
    """Whether the server has nothing more to prove."""

    def first(self) -> bytes:
        """The client's first token."""

    def evaluate(self, token: bytes) -> bytes | None:
        """The answer to the server's next token; None: there is none.  SaslError where the server is not who it
        should be, or refuses."""


@dataclass(frozen=True, slots=True)
class Login:
    """A name with its password, of a client."""

    name: str
    password: str = field(repr=False)
    by_token: bool = False
    """The name is a delegation token's id, the password its HMAC."""
