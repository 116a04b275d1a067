"""OAUTHBEARER (RFC 7628): a bearer token in one message; whether a token is good, its checker says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kbroker.security.sasl.mechanism import (
    Authenticated,
    AuthenticationRefusedError,
    ClientMechanism,
    SaslError,
    ServerMechanism,
)

OAUTHBEARER = "OAUTHBEARER"
SEPARATOR = "\x01"
INVALID_TOKEN = '{"status":"invalid_token"}'
_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=(?P<authorization>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_BEARER = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)


class InvalidTokenError(Exception):
    """A token that is not accepted.  The message says why, for the broker's log: nothing of the token."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """What an accepted token says."""

    principal: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class InitialResponse:
    """The client's message.  `extensions` are Kafka's (KIP-342)."""

    authorization: str
    token: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)


def read_client_first(message: bytes) -> InitialResponse:
    """SaslError for anything else."""
    found = _FIRST.fullmatch(message.decode("utf-8", "replace"))
    if found is None:
        raise SaslError("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split(SEPARATOR)[:-1])
    bearer = pairs.pop("auth", None)
    if bearer is None:
        raise SaslError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    token = _BEARER.fullmatch(bearer)
    if token is None:
        raise SaslError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if token["scheme"].lower() != "bearer":
        raise SaslError("Invalid scheme in OAUTHBEARER client first message")
    return InitialResponse(_unescaped(found["authorization"] or ""), token["token"], pairs)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


class OAuthBearerServer(ServerMechanism):
    """`check` gives what a token says, or raises InvalidTokenError; `refused` hears why.

    A token that is not accepted is answered with why, as JSON; the client acknowledges that, and then it has failed.
    """

    def __init__(
        self, check: Callable[[str], BearerToken], refused: Callable[[InvalidTokenError], object] = lambda error: None
    ) -> None:
        self._check = check
        self._refused = refused
        self._has_failed = False
        self.outcome: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        if self.outcome is not None:
            raise SaslError("a token behind the last one")
        if self._has_failed:
            # What a client sends now is the acknowledgement, or does not matter.
            raise AuthenticationRefusedError(INVALID_TOKEN)
        first = read_client_first(token)
        try:
            said = self._check(first.token)
        except InvalidTokenError as error:
            self._refused(error)
            self._has_failed = True
            return INVALID_TOKEN.encode()
        if first.authorization and first.authorization != said.principal:
            raise AuthenticationRefusedError(
                f"Authentication failed: Client requested an authorization id ({first.authorization}) that is "
                f"different from the token's principal name ({said.principal})"
            )
        self.outcome = Authenticated(said.principal, said.expires_ms)
        return b""


class OAuthBearerClient(ClientMechanism):
    """The client's end, with a token."""

    name = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = extensions or {}
        self.complete = False

    def first(self) -> bytes:
        pairs = {"auth": f"Bearer {self._token}", **self._extensions}
        return (
            f"n,,{SEPARATOR}{''.join(f'{key}={value}{SEPARATOR}' for key, value in pairs.items())}{SEPARATOR}".encode()
        )

    def evaluate(self, token: bytes) -> bytes | None:
        if token:
            return SEPARATOR.encode()  # The server has said why it does not accept the token.
        self.complete = True
        return None
