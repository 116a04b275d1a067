"""The principal of a client, and the state of its authentication.

A listener gives each connection its first session (`ListenerSecurity`), which is HANDSHAKE where clients have to
authenticate, and AUTHENTICATED where they need not.  What may follow:

    HANDSHAKE -> MECHANISM       the client has asked for versions, which it may do once
    HANDSHAKE, MECHANISM -> AUTHENTICATE    the client has named a mechanism that the listener has
    AUTHENTICATE -> AUTHENTICATED, FAILED
    AUTHENTICATED -> AUTHENTICATE    the client authenticates again (KIP-368)
    FAILED                       the connection is closed
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker.protocol.api import ApiKey

if TYPE_CHECKING:
    from kbroker._fast.net.connection import Connection


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
    MECHANISM = "mechanism"
    AUTHENTICATE = "authenticate"
    AUTHENTICATED = "authenticated"
    FAILED = "failed"


_S = AuthenticationState
TRANSITIONS: Mapping[AuthenticationState, frozenset[AuthenticationState]] = MappingProxyType(
    {
        _S.HANDSHAKE: frozenset({_S.MECHANISM, _S.AUTHENTICATE, _S.FAILED}),
        _S.MECHANISM: frozenset({_S.AUTHENTICATE, _S.FAILED}),
        _S.AUTHENTICATE: frozenset({_S.AUTHENTICATED, _S.FAILED}),
        _S.AUTHENTICATED: frozenset({_S.AUTHENTICATE}),
        _S.FAILED: frozenset(),
    }
)
_LOGIN = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_SERVED: Mapping[AuthenticationState, frozenset[ApiKey]] = MappingProxyType(
    {
        _S.HANDSHAKE: _LOGIN | {ApiKey.API_VERSIONS},
        _S.MECHANISM: _LOGIN,
        # Where ApiVersions is answered that it is not expected.
        _S.AUTHENTICATE: _LOGIN | {ApiKey.API_VERSIONS},
        _S.FAILED: frozenset(),
    }
)
"""What is served before a client has authenticated."""


class Exchange(Protocol):
    """How a client authenticates (`security.sasl.exchange`)."""

    takes_tokens: bool
    """Whether its tokens come without a request around them."""

    @property
    def failure_delay_ms(self) -> int:
        """How long the answer to a client that has failed is held back."""

    @property
    def mechanisms(self) -> list[str]:
        """Those that the client may name."""

    def name_mechanism(self, session: Session, name: str, version: int) -> AuthenticationStep:
        """The client asks for a mechanism, by a version of SaslHandshake."""

    def refuse(self, session: Session, api: str) -> AuthenticationStep:
        """The client asks for something else than the next token."""

    def prepare(self, session: Session, token: bytes) -> Coroutine[object, None, None] | None:
        """What has to be awaited before `take_token`, so that that takes the loop no time; None: nothing."""

    def take_token(self, session: Session, token: bytes) -> AuthenticationStep:
        """The client's next token."""

    def take_frame(self, connection: Connection, session: Session, token: bytes) -> bytes | None:
        """One without a request around it: its answer as a frame; None where the connection is closed instead."""

    def note_expiry(self) -> None:
        """The connection is closed as its client has not authenticated again."""


@dataclass(frozen=True, slots=True)
class Session:
    """Who is at the other end of a connection."""

    principal: Principal = ANONYMOUS
    host: str = ""
    listener: str = ""
    state: AuthenticationState = AuthenticationState.HANDSHAKE
    """By default a session has to authenticate."""
    by_token: bool = False
    """Whether it has shown a delegation token: it may ask for no other."""
    expires_at: float | None = None
    """When the client has to have authenticated again, in seconds of the monotonic clock; None: never."""
    exchange: Exchange | None = field(default=None, compare=False, repr=False)
    """How the client authenticates; None where it need not."""

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has proved who it is, or need not."""
        return self.state is AuthenticationState.AUTHENTICATED

    @property
    def takes_tokens(self) -> bool:
        """Whether what comes next are tokens without a request's header."""
        return self.exchange is not None and self.exchange.takes_tokens and not self.is_authenticated

    def take_token(self, connection: Connection, token: bytes) -> bytes | None:
        """One of those has come: its answer as a frame; None where the connection is closed instead."""
        assert self.exchange is not None
        return self.exchange.take_frame(connection, self, token)

    def has_expired(self, now: float) -> bool:
        """Whether the client should have authenticated again by `now`, in seconds of the monotonic clock."""
        return self.expires_at is not None and now > self.expires_at

    def may_ask(self, api_key: int) -> bool:
        """Whether a request of this API is served in the session's state."""
        return self.is_authenticated or api_key in _SERVED[self.state]

    def moved(self, state: AuthenticationState, principal: Principal | None = None) -> Session:
        """The session in its next state.  ValueError for one that cannot follow."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"{self.state.value} is not followed by {state.value}")
        return replace(self, state=state, principal=principal or self.principal)


@dataclass(frozen=True, slots=True)
class AuthenticationStep:
    """What comes of a client's message while it authenticates.  `error`: the code of the answer, 0 where all is well.

    `session` is FAILED where the connection is closed behind the answer; `is_silent`: without one.
    """

    session: Session
    token: bytes = b""
    lifetime_ms: int = 0
    error: int = 0
    message: str | None = None
    is_silent: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the connection ends."""
        return self.session.state is AuthenticationState.FAILED
