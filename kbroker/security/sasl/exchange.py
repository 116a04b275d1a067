"""The server's exchange with one client: which mechanism, its tokens, and when they have to be renewed (KIP-368).

    HANDSHAKE       the client names a mechanism
    AUTHENTICATE    its tokens are the mechanism's
    AUTHENTICATED   it may begin again, where sessions end, as the same principal by the same mechanism
    FAILED          it is answered, after a delay, and its connection is closed

The state is the session's (`security.principal`); each step gives the session that follows.  What is wrong has Kafka's
words (`SaslServerAuthenticator`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.security.principal import AuthenticationState, AuthenticationStep, Exchange, Principal, Session
from kbroker.security.sasl.mechanism import (
    Authenticated,
    AuthenticationRefusedError,
    SaslError,
    ServerMechanism,
)

if TYPE_CHECKING:
    from kbroker._fast.net.connection import Connection
    from kbroker.clock import Clock

logger = logging.getLogger("kbroker.security")

AUTHENTICATION_FAILED = "authentication failed"
LEAST_REAUTHENTICATION_SECONDS = 1.0
"""A client that authenticates again sooner is refused."""


@dataclass(frozen=True, slots=True)
class OfferedMechanism:
    """A mechanism of a listener: what makes a server's end for each client, and after how long clients have to
    authenticate again (0: never)."""

    make: Callable[[], ServerMechanism]
    max_reauth_ms: int = 0


class SaslStats:
    """How often clients of a listener have authenticated, by mechanism."""

    __slots__ = ("expired_count", "failed", "failed_again", "succeeded", "succeeded_again")

    def __init__(self) -> None:
        self.succeeded: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.succeeded_again: Counter[str] = Counter()
        self.failed_again: Counter[str] = Counter()
        self.expired_count = 0


@dataclass(frozen=True, slots=True)
class SaslServer:
    """What the exchanges of a listener have in common.  `failed` hears why a client's has failed: address, mechanism
    and reason."""

    mechanisms: Mapping[str, OfferedMechanism]
    clock: Clock
    failure_delay_ms: int
    stats: SaslStats
    failed: Callable[[str, str, str], object] = lambda host, mechanism, reason: None


class SaslExchange(Exchange):
    """See the module."""

    __slots__ = ("_began_again_at", "_former", "_machine", "_mechanism", "_server", "_wrong_mechanism", "takes_tokens")

    def __init__(self, server: SaslServer) -> None:
        self._server = server
        self._mechanism = ""
        self._machine: ServerMechanism | None = None
        # The principal before, while the client authenticates again.
        self._former: Principal | None = None
        self._began_again_at: float | None = None
        self._wrong_mechanism = ""
        self.takes_tokens = False

    @property
    def failure_delay_ms(self) -> int:
        return self._server.failure_delay_ms

    @property
    def mechanisms(self) -> list[str]:
        return list(self._server.mechanisms)

    def name_mechanism(self, session: Session, name: str, version: int) -> AuthenticationStep:
        if session.state is AuthenticationState.AUTHENTICATE:
            return self._fail(session, ErrorCode.ILLEGAL_SASL_STATE, _unexpected("SASL_HANDSHAKE"))
        if session.is_authenticated:
            if not self._may_begin_again(session):
                return AuthenticationStep(session, error=ErrorCode.ILLEGAL_SASL_STATE)
            self._former = session.principal
            if name in self._server.mechanisms and name != self._mechanism:
                self._wrong_mechanism = (
                    f"SASL mechanism '{name}' requested by client is not supported for re-authentication of "
                    f"mechanism '{self._mechanism}'"
                )
        mechanism = self._server.mechanisms.get(name)
        if mechanism is None:
            # What a client names is counted under none: it could be anything, and without end.
            session = session if not session.is_authenticated else session.moved(AuthenticationState.AUTHENTICATE)
            return self._fail(session, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unsupported SASL mechanism")
        if not self._wrong_mechanism:
            self._mechanism = name
            try:
                self._machine = mechanism.make()
            except SaslError as error:
                session = session if not session.is_authenticated else session.moved(AuthenticationState.AUTHENTICATE)
                return self._fail(session, ErrorCode.SASL_AUTHENTICATION_FAILED, "no mechanism", str(error))
        self.takes_tokens = version == 0
        return AuthenticationStep(session.moved(AuthenticationState.AUTHENTICATE))

    def refuse(self, session: Session, api: str) -> AuthenticationStep:
        return self._fail(session, ErrorCode.ILLEGAL_SASL_STATE, _unexpected(api))

    def _may_begin_again(self, session: Session) -> bool:
        """Whether re-authentication is allowed: only for sessions that expire, and once a second at most.

        Records the time.
        """
        now = self._server.clock.monotonic()
        last = self._began_again_at
        if session.expires_at is None or (last is not None and now - last < LEAST_REAUTHENTICATION_SECONDS):
            return False
        self._began_again_at = now
        return True

    def prepare(self, session: Session, token: bytes) -> Coroutine[object, None, None] | None:
        if session.state is not AuthenticationState.AUTHENTICATE or self._machine is None or self._wrong_mechanism:
            return None
        return self._machine.prepare(token)

    def take_token(self, session: Session, token: bytes) -> AuthenticationStep:
        if session.state in (AuthenticationState.HANDSHAKE, AuthenticationState.MECHANISM):
            failed = self._fail(session, ErrorCode.ILLEGAL_SASL_STATE, "a token before a mechanism")
            return replace(failed, is_silent=True)
        if session.is_authenticated:
            return AuthenticationStep(
                session,
                error=ErrorCode.ILLEGAL_SASL_STATE,
                message="SaslAuthenticate request received after successful authentication",
            )
        if self._wrong_mechanism:
            return self._fail(session, ErrorCode.SASL_AUTHENTICATION_FAILED, self._wrong_mechanism)
        machine = self._machine
        assert machine is not None
        try:
            answer = machine.evaluate(token)
            outcome = machine.outcome
            if outcome is None:
                return AuthenticationStep(session, answer)
            principal = self._principal(outcome)
        except AuthenticationRefusedError as error:
            return self._fail(session, ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        except SaslError as error:
            message = f"Authentication failed during {self._text} due to invalid credentials with SASL mechanism "
            return self._fail(session, ErrorCode.SASL_AUTHENTICATION_FAILED, message + self._mechanism, str(error))
        return self._succeed(session, principal, outcome, answer)

    def take_frame(self, connection: Connection, session: Session, token: bytes) -> bytes | None:
        # Old clients send tokens so (SaslHandshake 0).  One that fails gets no answer, as in Kafka.
        step = self.take_token(session, token)
        connection.session = step.session
        if not step.has_failed:
            return len(step.token).to_bytes(4, "big") + step.token
        connection.mute()
        delay = self.failure_delay_ms / 1000
        connection.endpoint.reactor.loop.call_later(delay, connection.close, AUTHENTICATION_FAILED)
        return None

    @property
    def _text(self) -> str:
        return "authentication" if self._former is None else "re-authentication"

    def _principal(self, outcome: Authenticated) -> Principal:
        principal = Principal("User", outcome.name)
        if self._former is not None and principal != self._former:
            raise AuthenticationRefusedError(
                f"Cannot change principals during re-authentication from {self._former.kind}.{self._former.name}: "
                f"{principal.kind}.{principal.name}"
            )
        return principal

    def _succeed(
        self, session: Session, principal: Principal, outcome: Authenticated, answer: bytes
    ) -> AuthenticationStep:
        stats, clock = self._server.stats, self._server.clock
        (stats.succeeded if self._former is None else stats.succeeded_again)[self._mechanism] += 1
        self._machine = self._former = None
        lifetime_ms = self._lifetime_ms(outcome)
        session = replace(
            session.moved(AuthenticationState.AUTHENTICATED, principal),
            by_token=outcome.by_token,
            expires_at=None if lifetime_ms is None else clock.monotonic() + lifetime_ms / 1000,
        )
        return AuthenticationStep(session, answer, lifetime_ms or 0)

    def _lifetime_ms(self, outcome: Authenticated) -> int | None:
        """How long the session lasts: as long as the credential, and no longer than `connections.max.reauth.ms`."""
        longest = self._server.mechanisms[self._mechanism].max_reauth_ms
        limits = [longest] if longest > 0 else []
        if outcome.expires_ms is not None:
            limits.append(outcome.expires_ms - self._server.clock.now_ms())
        return max(0, min(limits)) if limits else None

    def note_expiry(self) -> None:
        self._server.stats.expired_count += 1

    def _fail(self, session: Session, error: ErrorCode, message: str, reason: str = "") -> AuthenticationStep:
        """`reason`: what the broker's log says, where the client's answer says less."""
        stats = self._server.stats
        (stats.failed if self._former is None else stats.failed_again)[self._mechanism or "none"] += 1
        self._server.failed(session.host, self._mechanism or "none", reason or message)
        self._machine = None
        return AuthenticationStep(session.moved(AuthenticationState.FAILED), error=error, message=message)


def _unexpected(api: str) -> str:
    return f"Unexpected Kafka request of type {api} during SASL authentication."
