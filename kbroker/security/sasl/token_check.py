"""Whether a JSON Web Token is accepted: signature, times, issuer, audience, subject, as Kafka's BrokerJwtValidator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kbroker.security.sasl.oauthbearer import BearerToken, InvalidTokenError

if TYPE_CHECKING:
    from joserfc.jwk import Key

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Signatures by a private key alone.  With `none` anybody signs, and with a shared secret every broker could."""
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
MOST_TOKEN_CHARACTERS = 65_536


class TokenKeys(Protocol):
    """Where the issuer's public keys are (`jwks.Jwks`)."""

    def candidates(self, key_id: str | None, key_type: str) -> Sequence[Key]:
        """Keys that may have signed a token with that `kid`."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What is asked of a token: `sasl.oauthbearer.*`."""

    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    skew_seconds: int = 30


class TokenCheck:
    """Checks tokens of one listener.  `now_ms`: milliseconds since 1970."""

    def __init__(self, rules: TokenRules, keys: TokenKeys, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._keys = keys
        self._now_ms = now_ms

    def __call__(self, token: str) -> BearerToken:
        """InvalidTokenError unless it is accepted."""
        if len(token) > MOST_TOKEN_CHARACTERS:
            raise InvalidTokenError(f"a token of {len(token)} characters")
        return self._judge(self._verified(token))

    def _verified(self, token: str) -> Mapping[str, object]:
        """The claims of a token that one of the keys has signed."""
        from joserfc import jws, jwt
        from joserfc.errors import JoseError

        try:
            header = jws.extract_compact(token.encode()).headers()
        except (JoseError, ValueError, TypeError, RecursionError):
            raise InvalidTokenError("it is no JSON Web Token") from None
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise InvalidTokenError("its algorithm is no signature by a private key")
        if header.get("crit") is not None:
            raise InvalidTokenError("it asks for extensions")
        key_id = header.get("kid")
        keys = self._keys.candidates(key_id if isinstance(key_id, str) else None, _KEY_TYPES[algorithm[:2]])
        for key in keys:
            if key.get("alg") not in (None, algorithm) or key.get("use") not in (None, "sig"):
                continue
            try:
                claims = jwt.decode(token, key, algorithms=[algorithm]).claims
            except (JoseError, ValueError, TypeError, RecursionError):
                continue
            if isinstance(claims, dict):
                return claims
        raise InvalidTokenError("its signature is by none of the issuer's keys" if keys else "its key is not known")

    def _judge(self, claims: Mapping[str, object]) -> BearerToken:
        rules, now = self._rules, self._now_ms() / 1000
        expires = _seconds(claims, "exp")
        if expires is None:
            raise InvalidTokenError("it has no expiration time")
        if expires + rules.skew_seconds <= now:
            raise InvalidTokenError("it has expired")
        if _seconds(claims, "iat") is None:
            raise InvalidTokenError("it does not say when it was issued")
        begins = _seconds(claims, "nbf")
        if begins is not None and begins - rules.skew_seconds > now:
            raise InvalidTokenError("it is not valid yet")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise InvalidTokenError("it is of another issuer")
        audiences = _texts(claims, "aud")
        if rules.audiences and not set(audiences) & set(rules.audiences):
            raise InvalidTokenError("it is for another audience")
        if audiences and not rules.audiences:
            raise InvalidTokenError("it is for an audience, and sasl.oauthbearer.expected.audience names none")
        _texts(claims, rules.scope_claim)
        subject = claims.get(rules.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise InvalidTokenError(f"it has no {rules.subject_claim}")
        return BearerToken(subject, int(expires * 1000))


def _seconds(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise InvalidTokenError(f"its {name} is no time")
    return float(value)


def _texts(claims: Mapping[str, object], name: str) -> list[str]:
    value = claims.get(name)
    if value is None:
        return []
    values: list[object] = value if isinstance(value, list) else [value]
    texts = [each for each in values if isinstance(each, str)]
    if len(texts) != len(values):
        raise InvalidTokenError(f"its {name} is no text")
    return texts
