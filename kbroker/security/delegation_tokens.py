"""Delegation tokens (KIP-48): their HMACs, and the changes that requests ask for, judged as Kafka judges them.

A token's HMAC is worked out of its id and `delegation.token.secret.key`; the metadata do not have it.  Principals are
texts such as `User:alice` here, as they are stored.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from dataclasses import dataclass, replace

from kbroker.errors import ErrorCode
from kbroker.metadata.security_image import DelegationToken, SecurityDelta, SecurityImage

_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class TokenLives:
    """How long tokens live: `delegation.token.max.lifetime.ms`, `delegation.token.expiry.time.ms`."""

    max_ms: int
    renewal_ms: int


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """What shows that a client was given the token."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def token_password(token: bytes) -> str:
    """An HMAC as clients use it: the password of a SCRAM login whose user is the token's id."""
    return base64.b64encode(token).decode()


def new_token(
    owner: str, requester: str, renewers: tuple[str, ...], lifetime_ms: int, now_ms: int, lives: TokenLives
) -> DelegationToken:
    """A token with an id of its own; `lifetime_ms` below 1: as long as tokens live."""
    end_ms = now_ms + (min(lifetime_ms, lives.max_ms) if lifetime_ms > 0 else lives.max_ms)
    token_id = base64.urlsafe_b64encode(secrets.token_bytes(_ID_BYTES)).rstrip(b"=").decode()
    return DelegationToken(token_id, owner, requester, renewers, now_ms, end_ms, min(end_ms, now_ms + lives.renewal_ms))


def concerns(token: DelegationToken, principal: str) -> bool:
    """Whether the principal owns the token, has asked for it, or may renew it."""
    return principal in (token.owner, token.requester, *token.renewers)


def is_shown(secret: bytes, token_id: str, shown: bytes) -> bool:
    """Whether that is the token's HMAC."""
    return hmac.compare_digest(token_hmac(secret, token_id), shown)


@dataclass(frozen=True, slots=True)
class TokenCreation:
    """A token to be made."""

    token: DelegationToken

    def plan(self, _image: SecurityImage) -> tuple[SecurityDelta, None]:
        """See `SecurityChange`."""
        return SecurityDelta(tokens={self.token.token_id: self.token}), None


TokenOutcome = tuple[ErrorCode, int]
"""An error, and when the token expires."""


@dataclass(frozen=True, slots=True)
class TokenRenewal:
    """A token to be renewed by a principal; `token_id` None: there is none with the HMAC that was shown.

    `period_ms`: from now on; below 1: as long as a renewal lasts.
    """

    token_id: str | None
    principal: str
    period_ms: int
    now_ms: int
    lives: TokenLives

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, TokenOutcome]:
        """See `SecurityChange`."""
        token = None if self.token_id is None else image.tokens.get(self.token_id)
        if token is None:
            return SecurityDelta(), (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
        if min(token.max_ms, token.expires_ms) < self.now_ms:
            return SecurityDelta(), (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
        if not _may_renew(token, self.principal):
            return SecurityDelta(), (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        longest = self.lives.renewal_ms
        period_ms = longest if self.period_ms < 1 else min(self.period_ms, longest)
        return _prolonged(token, self.now_ms + period_ms)


@dataclass(frozen=True, slots=True)
class TokenExpiry:
    """A token that is to end after a period; below 0: now."""

    token_id: str | None
    principal: str
    period_ms: int
    now_ms: int

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, TokenOutcome]:
        """See `SecurityChange`."""
        token = None if self.token_id is None else image.tokens.get(self.token_id)
        if token is None:
            return SecurityDelta(), (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
        if not _may_renew(token, self.principal):
            return SecurityDelta(), (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        if self.period_ms < 0:
            return SecurityDelta(tokens={token.token_id: None}), (ErrorCode.NONE, self.now_ms)
        if min(token.max_ms, token.expires_ms) < self.now_ms:
            return SecurityDelta(), (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
        return _prolonged(token, self.now_ms + self.period_ms)


@dataclass(frozen=True, slots=True)
class ExpiredTokens:
    """Tokens that have expired are to go."""

    now_ms: int

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, int]:
        """See `SecurityChange`; how many there were."""
        gone: dict[str, DelegationToken | None] = {
            token_id: None for token_id, token in image.tokens.items() if has_expired(token, self.now_ms)
        }
        return SecurityDelta(tokens=gone), len(gone)


def has_expired(token: DelegationToken, now_ms: int) -> bool:
    """Whether the token has ended."""
    return min(token.max_ms, token.expires_ms) < now_ms


def _may_renew(token: DelegationToken, principal: str) -> bool:
    return principal in (token.owner, *token.renewers)


def _prolonged(token: DelegationToken, until_ms: int) -> tuple[SecurityDelta, TokenOutcome]:
    until_ms = min(token.max_ms, until_ms)
    return SecurityDelta(tokens={token.token_id: replace(token, expires_ms=until_ms)}), (ErrorCode.NONE, until_ms)
