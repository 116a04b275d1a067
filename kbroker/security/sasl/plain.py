"""PLAIN (RFC 4616): name and password as they are.  A listener without TLS shows them to the network."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping

from kbroker.security.sasl.mechanism import (
    Authenticated,
    AuthenticationRefusedError,
    ClientMechanism,
    Login,
    SaslError,
    ServerMechanism,
)

PLAIN = "PLAIN"
USER_PREFIX = "user_"
_PARTS = 3


class PlainUsers:
    """The users of a listener's PlainLoginModule: `user_NAME="password"`."""

    __slots__ = ("_digests",)

    def __init__(self, options: Mapping[str, str]) -> None:
        self._digests = {
            key.removeprefix(USER_PREFIX): _digest(value)
            for key, value in options.items()
            if key.startswith(USER_PREFIX)
        }

    def accepts(self, name: str, password: str) -> bool:
        """Whether that is the user's password.  A user that there is not takes as long as a wrong password."""
        known = self._digests.get(name)
        is_equal = hmac.compare_digest(_digest(password), _NOBODYS if known is None else known)
        return is_equal and known is not None


def _digest(password: str) -> bytes:
    """Of one length for all, so that a comparison says nothing of the password's."""
    return hmac.digest(_KEY, password.encode(), "sha256")


_KEY = secrets.token_bytes(32)
_NOBODYS = secrets.token_bytes(32)


class PlainServer(ServerMechanism):
    """One message, one answer.  `accepts` says whether a password is a user's."""

    def __init__(self, accepts: Callable[[str, str], bool]) -> None:
        self._accepts = accepts
        self.outcome: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        if self.outcome is not None:
            raise SaslError("a token behind the last one")
        parts = token.decode("utf-8", "replace").split("\0", _PARTS)
        if len(parts) != _PARTS:
            raise AuthenticationRefusedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization, name, password = parts
        if not name:
            raise AuthenticationRefusedError("Authentication failed: username not specified")
        if not password:
            raise AuthenticationRefusedError("Authentication failed: password not specified")
        if not self._accepts(name, password):
            raise AuthenticationRefusedError("Authentication failed: Invalid username or password")
        if authorization and authorization != name:
            raise AuthenticationRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.outcome = Authenticated(name)
        return b""


class PlainClient(ClientMechanism):
    """The client's end."""

    name = PLAIN

    def __init__(self, login: Login) -> None:
        self._login = login
        self.complete = False

    def first(self) -> bytes:
        return b"\0" + self._login.name.encode() + b"\0" + self._login.password.encode()

    def evaluate(self, token: bytes) -> None:
        if token:
            raise SaslError("PLAIN: the server answers with a token")
        self.complete = True
