"""The principal of a client, and the state of its authentication.

A listener gives each connection its first session (`ListenerSecurity`), which is HANDSHAKE where clients have to
authenticate, and AUTHENTICATED where they need not.  What may follow:

    HANDSHAKE -> AUTHENTICATE    the client has named a mechanism that the listener has
    AUTHENTICATE -> AUTHENTICATED, FAILED
    AUTHENTICATED -> AUTHENTICATE    the client authenticates again (KIP-368)
    FAILED                       the connection is closed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from kbroker.protocol.api import ApiKey


class Principal(NamedTuple):
    """A client's name and the kind of it, `User` for all that Kafka has."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class AuthenticationState(Enum):
    """How far a connection has come."""

    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    AUTHENTICATED = "authenticated"
    FAILED = "failed"


_S = AuthenticationState
TRANSITIONS: Mapping[AuthenticationState, frozenset[AuthenticationState]] = MappingProxyType(
    {
        _S.HANDSHAKE: frozenset({_S.AUTHENTICATE, _S.FAILED}),
        _S.AUTHENTICATE: frozenset({_S.AUTHENTICATED, _S.FAILED}),
        _S.AUTHENTICATED: frozenset({_S.AUTHENTICATE}),
        _S.FAILED: frozenset(),
    }
)
_ALWAYS = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


@dataclass(frozen=True, slots=True)
class Session:
    """Who is at the other end of a connection."""

    principal: Principal = ANONYMOUS
    host: str = ""
    listener: str = ""
    state: AuthenticationState = AuthenticationState.HANDSHAKE
    """By default a session has to authenticate."""

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has proved who it is, or need not."""
        return self.state is AuthenticationState.AUTHENTICATED

    def may_ask(self, api_key: int) -> bool:
        """Whether a request of this API is served in the session's state."""
        return self.is_authenticated or (self.state is not AuthenticationState.FAILED and api_key in _ALWAYS)

    def moved(self, state: AuthenticationState, principal: Principal | None = None) -> Session:
        """The session in its next state.  ValueError for one that cannot follow."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"{self.state.value} is not followed by {state.value}")
        return replace(self, state=state, principal=principal or self.principal)
