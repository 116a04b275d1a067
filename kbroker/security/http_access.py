"""Who may look at what the metrics listener shows (`kbroker.metrics.authentication`).

    basic    name and password of a user with SCRAM credentials in the cluster's metadata, or of a listener with PLAIN
    bearer   the token of `kbroker.metrics.bearer.token`; it speaks for `kbroker.metrics.bearer.principal`
    none     everybody may look, as on a broker without security

Where it is not set, everybody may look at a broker without security, and no one at one with an authorizer or with a
listener that authenticates.

A password takes milliseconds to check, which a thread does, one at a time.  A proof that has held is remembered by its
digest as long as the user's credential stays the same.  A wrong one costs a client a second.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.metadata.security_image import ScramCredential, ScramKey
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.principal import Principal
from kbroker.security.protocols import has_sasl
from kbroker.security.scram import ScramMechanism, is_password

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.security.authorizer import Authorizer

BASIC, BEARER, NONE = "basic", "bearer", "none"
WRONG_SECONDS = 1.0
MOST_REMEMBERED = 1000
_UNKNOWN = ScramCredential(b"kbroker's salt of no user", b"", b"", 4096)
# The hash that hides a proof in memory; its key is of this process alone.
_KEY = secrets.token_bytes(32)


class Viewer:
    """A principal at an address, and what the authorizer lets it do.  `login`: see `metrics.http_messages.Viewer`."""

    __slots__ = ("_authorizer", "_host", "login", "principal")

    def __init__(
        self, principal: Principal, host: str, authorizer: Authorizer | None, login: tuple[str, str] | None = None
    ) -> None:
        self.principal = principal
        self.login = login
        self._host = host
        self._authorizer = authorizer

    def may(self, operation: int, kind: int, name: str) -> bool:
        """Whether it may do that to a resource; numbers are Kafka's."""
        return self._authorizer is None or self._authorizer.is_authorized(
            self.principal, self._host, Operation(operation), ResourceKind(kind), name
        )

    def may_any(self, operation: int, kind: int) -> bool:
        """Whether it may do that to at least one resource of a kind."""
        return self._authorizer is None or self._authorizer.is_authorized_for_any(
            self.principal, self._host, Operation(operation), ResourceKind(kind)
        )


class HttpAccess:
    """See the module and `metrics.http_messages.Access`.  `credentials()` gives the cluster's, by now."""

    def __init__(
        self,
        methods: frozenset[str],
        bearer_token: str | None,
        bearer_principal: Principal,
        credentials: Callable[[], Mapping[ScramKey, ScramCredential]],
        authorizer: Authorizer | None,
        is_plain: Callable[[str, str], bool] = lambda name, password: False,
    ) -> None:
        """`is_plain`: whether a password is that of a user of PLAIN."""
        self._is_plain = is_plain
        self._token = None if bearer_token is None or BEARER not in methods else _digest(bearer_token.encode())
        self._bearer = bearer_principal
        self._has_basic = BASIC in methods
        self._credentials = credentials
        self._authorizer = authorizer
        self._remembered: dict[bytes, tuple[str, ScramKey, ScramCredential]] = {}
        self._checking = asyncio.Lock()
        schemes = []
        if self._has_basic:
            schemes.append('Basic realm="kbroker", charset="UTF-8"')
        if self._token is not None:
            schemes.append('Bearer realm="kbroker"')
        self.challenge = ", ".join(schemes)
        self.refusal = (
            "this takes a proof of the viewer: kbroker.metrics.authentication"
            if schemes
            else "the broker has security: only probes are shown where kbroker.metrics.authentication is not set"
        )

    async def viewer(self, authorization: str, host: str) -> Viewer | None:
        """The viewer that is proved; None where none is, a second later where something was wrong."""
        scheme, _, proof = authorization.partition(" ")
        principal: Principal | None = None
        login = None
        if scheme.lower() == BEARER and self._token is not None:
            if hmac.compare_digest(_digest(proof.strip().encode()), self._token):
                principal = self._bearer
        elif scheme.lower() == BASIC and self._has_basic:
            name = await self._user_of(proof.strip())
            if name is not None:
                principal, login = Principal("User", name), _parts_of(proof.strip())
        elif not authorization:
            return None
        if principal is None:
            await asyncio.sleep(WRONG_SECONDS)
            return None
        return Viewer(principal, host, self._authorizer, login)

    async def _user_of(self, proof: str) -> str | None:
        digest = _digest(proof.encode())
        known = self._remembered.get(digest)
        if known is not None:
            name, key, credential = known
            if self._credentials().get(key) == credential:
                return name
            del self._remembered[digest]
        parts = _parts_of(proof)
        if parts is None:
            return None
        name, password = parts
        if password and self._is_plain(name, password):
            return name
        key = next(
            (each for mechanism in ScramMechanism if (each := ScramKey(name, mechanism)) in self._credentials()),
            ScramKey(name, ScramMechanism.SCRAM_SHA_256),
        )
        credential = self._credentials().get(key, _UNKNOWN)
        async with self._checking:
            is_right = await asyncio.get_running_loop().run_in_executor(
                None, is_password, ScramMechanism(key.mechanism), password, credential
            )
        if not is_right:
            return None
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[digest] = name, key, credential
        return name


def _parts_of(proof: str) -> tuple[str, str] | None:
    """The name and the password of a proof by Basic; None where it is none."""
    try:
        name, colon, password = base64.b64decode(proof, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None


def http_access(
    config: BrokerConfig,
    credentials: Callable[[], Mapping[ScramKey, ScramCredential]],
    authorizer: Authorizer | None,
    is_plain: Callable[[str, str], bool] = lambda name, password: False,
) -> HttpAccess | None:
    """By the settings; None where everybody may look.  `is_plain`: see `HttpAccess`."""
    methods = frozenset(config.get("kbroker.metrics.authentication"))
    if NONE in methods or (not methods and not _is_secured(config)):
        return None
    kind, _, name = config.get("kbroker.metrics.bearer.principal").partition(":")
    token = config.get("kbroker.metrics.bearer.token")
    return HttpAccess(methods, token, Principal(kind, name), credentials, authorizer, is_plain)


def _is_secured(config: BrokerConfig) -> bool:
    """Whether there is an authorizer, or a listener whose clients prove who they are."""
    return bool(config.get("authorizer.class.name")) or any(
        has_sasl(each.protocol)
        or (each.protocol == "SSL" and config.for_listener(each.name, "ssl.client.auth") != "none")
        for each in config.listeners
    )


def _digest(proof: bytes) -> bytes:
    """Of one length for all, so that a comparison takes the same time."""
    return hmac.digest(_KEY, proof, hashlib.sha256)
