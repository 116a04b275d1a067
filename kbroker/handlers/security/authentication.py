"""SaslHandshake (API 17): v0-v1.  SaslAuthenticate (API 36): v0-v2.

The connection's session knows its exchange (`kbroker.security.sasl.exchange`), which has the rules and the words.  A
client that has failed gets its answer after `connection.failed.authentication.delay.ms`, and its connection is closed
behind it.  With SaslHandshake 0 the tokens that follow are frames without a header, which the exchange gets from the
connection.  On a listener without SASL both are answered ILLEGAL_SASL_STATE, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING

from kbroker._fast.net.pending import Pending
from kbroker.errors import ErrorCode
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.principal import AuthenticationState
from kbroker.security.sasl.exchange import AUTHENTICATION_FAILED

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.security.principal import AuthenticationStep, Exchange

_UNEXPECTED = "SaslAuthenticate request received after successful authentication"


class FailedAuthentication(Pending):
    """The answer to a client that has failed, after a delay; the end of its connection follows."""

    def __init__(self, response: Struct, delay_ms: int) -> None:
        self._response = response
        self._delay_ms = delay_ms

    def started(self) -> None:
        self.expire_after(self.ctx.services.loop, self._delay_ms)

    def expired(self) -> None:
        self.answer(self._response)
        self._close()

    def _close(self) -> None:
        # The answer may have to wait until no other request is being served.
        if self.ctx.open:
            self.ctx.services.loop.call_soon(self._close)
        else:
            self.ctx.connection.close(AUTHENTICATION_FAILED)


def handle_sasl_handshake(ctx: RequestContext, request: wire.SaslHandshakeRequest) -> Struct | Pending | None:
    """SaslHandshake v0-v1."""
    session = ctx.connection.session
    exchange = session.exchange
    if exchange is None:
        if session.is_authenticated:
            return wire.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        ctx.connection.close("unauthenticated request")
        return None
    step = exchange.name_mechanism(session, request.mechanism, ctx.api_version)
    # A handshake at the wrong time is answered nothing else.
    mechanisms = [] if step.error == ErrorCode.ILLEGAL_SASL_STATE else exchange.mechanisms
    return _taken(ctx, exchange, step, wire.SaslHandshakeResponse(error_code=step.error, mechanisms=mechanisms))


def handle_sasl_authenticate(
    ctx: RequestContext, request: wire.SaslAuthenticateRequest
) -> Struct | Pending | Coroutine[object, None, Struct | Pending | None] | None:
    """SaslAuthenticate v0-v2."""
    response = wire.SaslAuthenticateResponse
    session = ctx.connection.session
    exchange = session.exchange
    if exchange is None:
        if session.is_authenticated:
            return response(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_UNEXPECTED, auth_bytes=b"")
        ctx.connection.close("unauthenticated request")
        return None
    token = bytes(request.auth_bytes)
    preparation = exchange.prepare(session, token)
    if preparation is not None:
        return _prepared(ctx, exchange, token, preparation)
    return _take_token(ctx, exchange, token)


async def _prepared(
    ctx: RequestContext, exchange: Exchange, token: bytes, preparation: Coroutine[object, None, None]
) -> Struct | Pending | None:
    await preparation
    return _take_token(ctx, exchange, token)


def _take_token(ctx: RequestContext, exchange: Exchange, token: bytes) -> Struct | Pending | None:
    step = exchange.take_token(ctx.connection.session, token)
    answer = wire.SaslAuthenticateResponse(
        error_code=step.error,
        error_message=step.message or "",
        auth_bytes=step.token,
        session_lifetime_ms=step.lifetime_ms,
    )
    return _taken(ctx, exchange, step, answer)


def versions_asked(ctx: RequestContext) -> Struct | Pending | None:
    """A client asks for versions: None where it is answered, as all are that have authenticated.  A client that has yet
    to do so may ask once, before it names a mechanism."""
    session = ctx.connection.session
    if session.is_authenticated:
        return None
    if session.exchange is None or session.state is AuthenticationState.HANDSHAKE:
        ctx.connection.session = session.moved(AuthenticationState.MECHANISM)
        return None
    step = session.exchange.refuse(session, ApiKey.API_VERSIONS.name)
    return _taken(ctx, session.exchange, step, wire.ApiVersionsResponse(error_code=step.error))


def _taken(
    ctx: RequestContext, exchange: Exchange, step: AuthenticationStep, answer: Struct
) -> Struct | Pending | None:
    """The session goes on as the step says; the answer."""
    ctx.connection.session = step.session
    if not step.has_failed:
        return answer
    if step.is_silent:
        ctx.connection.close(AUTHENTICATION_FAILED)
        return None
    return FailedAuthentication(answer, exchange.failure_delay_ms)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.SASL_HANDSHAKE, 0, 1, handle_sasl_handshake),
    Handler(ApiKey.SASL_AUTHENTICATE, 0, 2, handle_sasl_authenticate),
)
