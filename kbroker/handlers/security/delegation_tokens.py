"""CreateDelegationToken (API 38): v0-v3.  RenewDelegationToken (39): v0-v2.  ExpireDelegationToken (40): v0-v2.
DescribeDelegationToken (41): v0-v3.

v0 is of clients of Kafka 1.1.  v2 is the flexible version.  v3 of Create and Describe names the requester besides the
owner (KIP-373).  A client that has not authenticated, or has done so by a token itself, may ask for none of it.  Rules
are Kafka's: `kbroker.security.delegation_tokens`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.delegation_tokens import (
    TokenCreation,
    TokenExpiry,
    TokenLives,
    TokenOutcome,
    TokenRenewal,
    concerns,
    is_shown,
    new_token,
    token_hmac,
)
from kbroker.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext, Services
    from kbroker.metadata.security_image import DelegationToken, SecurityChange

REQUESTER_FROM = schema("CreateDelegationTokenResponse").first_version("token_requester_principal_name")
_USER = "User"


def _secret(services: Services) -> bytes | None:
    """`delegation.token.secret.key`; without it there are no tokens."""
    text = services.config.get("delegation.token.secret.key")
    return None if text is None else text.encode()


def _lives(services: Services) -> TokenLives:
    config = services.config
    return TokenLives(config.get("delegation.token.max.lifetime.ms"), config.get("delegation.token.expiry.time.ms"))


def may_ask(ctx: RequestContext) -> bool:
    """Whether the client may ask for tokens, and about them."""
    session = ctx.connection.session
    return session.principal != ANONYMOUS and not session.by_token


async def handle_create_delegation_token(ctx: RequestContext, request: wire.CreateDelegationTokenRequest) -> Struct:
    """CreateDelegationToken v0-v3: a token of the client, or of another user for whom it may ask."""
    requester = ctx.connection.session.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    answer = wire.CreateDelegationTokenResponse(
        principal_type=owner.kind,
        principal_name=owner.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        hmac=b"",
    )
    if ctx.api_version >= REQUESTER_FROM:
        answer.token_requester_principal_type = requester.kind
        answer.token_requester_principal_name = requester.name
    secret = _secret(ctx.services)
    if not may_ask(ctx):
        answer.error_code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif owner != requester and not may(ctx, Operation.CREATE_TOKENS, ResourceKind.USER, str(owner)):
        answer.error_code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    elif any(each.principal_type != _USER for each in request.renewers):
        answer.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
    elif secret is None:
        answer.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    else:
        renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in request.renewers)
        token = new_token(
            str(owner),
            str(requester),
            renewers,
            request.max_lifetime_ms,
            ctx.services.clock.now_ms(),
            _lives(ctx.services),
        )
        try:
            await ctx.services.administration.alter_security(TokenCreation(token))
        except KafkaError as error:
            answer.error_code = error.code
            return answer
        answer.issue_timestamp_ms, answer.expiry_timestamp_ms = token.issued_ms, token.expires_ms
        answer.max_timestamp_ms, answer.token_id = token.max_ms, token.token_id
        answer.hmac = token_hmac(secret, token.token_id)
    return answer


async def handle_renew_delegation_token(ctx: RequestContext, request: wire.RenewDelegationTokenRequest) -> Struct:
    """RenewDelegationToken v0-v2."""
    services = ctx.services
    token_id = await _token_of(services, bytes(request.hmac))
    principal, now_ms = str(ctx.connection.session.principal), services.clock.now_ms()
    change = TokenRenewal(token_id, principal, request.renew_period_ms, now_ms, _lives(services))
    error, expires_ms = await _changed(ctx, change)
    return wire.RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expires_ms)


async def handle_expire_delegation_token(ctx: RequestContext, request: wire.ExpireDelegationTokenRequest) -> Struct:
    """ExpireDelegationToken v0-v2."""
    services = ctx.services
    token_id = await _token_of(services, bytes(request.hmac))
    principal, now_ms = str(ctx.connection.session.principal), services.clock.now_ms()
    error, expires_ms = await _changed(ctx, TokenExpiry(token_id, principal, request.expiry_time_period_ms, now_ms))
    return wire.ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expires_ms)


async def _token_of(services: Services, shown: bytes) -> str | None:
    """The id of the token with that HMAC, which all have to be worked out for; None without one."""
    secret, pace = _secret(services), services.slices.pace()
    if secret is not None:
        for token_id in services.metadata_cache.image.security.tokens:
            await pace
            if is_shown(secret, token_id, shown):
                return token_id
    return None


async def _changed(ctx: RequestContext, change: SecurityChange[TokenOutcome]) -> TokenOutcome:
    if not may_ask(ctx):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1
    if _secret(ctx.services) is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, 0
    try:
        return await ctx.services.administration.alter_security(change)
    except KafkaError as error:
        return error.code, 0


async def handle_describe_delegation_token(ctx: RequestContext, request: wire.DescribeDelegationTokenRequest) -> Struct:
    """DescribeDelegationToken v0-v3: what concerns the client, and what it may describe besides."""
    response = wire.DescribeDelegationTokenResponse
    secret = _secret(ctx.services)
    if not may_ask(ctx):
        return response(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if secret is None:
        return response(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = [f"{each.principal_type}:{each.principal_name}" for each in request.owners]
    pace = ctx.services.slices.pace()
    tokens = []
    for token in ctx.services.metadata_cache.image.security.tokens.values():
        await pace
        if owners is not None and not any(concerns(token, owner) for owner in owners):
            continue
        if _may_see(ctx, token):
            described = _described(token, token_hmac(secret, token.token_id))
            tokens.append(described)
            if ctx.api_version >= REQUESTER_FROM:
                requester = _principal(token.requester)
                described.token_requester_principal_type = requester.kind
                described.token_requester_principal_name = requester.name
    return response(tokens=tokens)


def _may_see(ctx: RequestContext, token: DelegationToken) -> bool:
    return (
        concerns(token, str(ctx.connection.session.principal))
        or may(ctx, Operation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, token.token_id)
        or may(ctx, Operation.DESCRIBE_TOKENS, ResourceKind.USER, token.owner)
    )


def _principal(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def _described(token: DelegationToken, shown: bytes) -> wire.DescribeDelegationTokenResponse.DescribedDelegationToken:
    response = wire.DescribeDelegationTokenResponse
    owner = _principal(token.owner)
    return response.DescribedDelegationToken(
        principal_type=owner.kind,
        principal_name=owner.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=shown,
        renewers=[
            response.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, token.renewers)
        ],
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.CREATE_DELEGATION_TOKEN, 0, 3, handle_create_delegation_token),
    Handler(ApiKey.RENEW_DELEGATION_TOKEN, 0, 2, handle_renew_delegation_token),
    Handler(ApiKey.EXPIRE_DELEGATION_TOKEN, 0, 2, handle_expire_delegation_token),
    Handler(ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, 3, handle_describe_delegation_token),
)
