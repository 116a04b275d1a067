"""The server's end of SCRAM.

A client cannot find out whether there is a user: for one that there is not the server goes on with a salt that is
always the same for that name, and refuses the proof.  (Kafka refuses the first message.)
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Protocol

from kbroker.metadata.security_image import ScramCredential
from kbroker.security import scram
from kbroker.security.sasl import scram_messages as messages
from kbroker.security.sasl.mechanism import (
    Authenticated,
    AuthenticationRefusedError,
    SaslError,
    ServerMechanism,
)
from kbroker.security.scram import LEAST_ITERATIONS, ScramMechanism

_NONCE_BYTES = 24


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """A delegation token that has not expired: its owner's name, what its HMAC is as a password, and its end."""

    owner: str
    credential: ScramCredential
    expires_ms: int


class ScramUsers(Protocol):
    """Where credentials are."""

    def user(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """A user's credential; None without one."""

    def token(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        """A token's; None without one."""

    def prepare_token(self, token_id: str, mechanism: ScramMechanism) -> Coroutine[object, None, None] | None:
        """What has to be awaited so that `token` costs the loop nothing; None: nothing."""


class UnknownUsers:
    """Salts for users that there are not.

    Derived from a secret that survives restarts (`keep`): otherwise salts of unknown users would change and give them
    away.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def keep(self, secret: bytes) -> None:
        """Salts come of this from now on."""
        self._secret = hmac.digest(secret, b"salts of unknown users", "sha256")

    def credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        """A credential that no password fits."""
        drawn = hmac.digest(self._secret, f"{mechanism.sasl_name} {name}".encode(), "sha512")
        keys = hmac.digest(self._secret, drawn, mechanism.hash_name)
        return ScramCredential(drawn[: scram.SALT_BYTES], keys, keys, LEAST_ITERATIONS)


class ScramServer(ServerMechanism):
    """Two messages, two answers."""

    def __init__(
        self, mechanism: ScramMechanism, users: ScramUsers, unknown: UnknownUsers, nonce: str | None = None
    ) -> None:
        self._mechanism = mechanism
        self._users = users
        self._unknown = unknown
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._first: messages.ClientFirst | None = None
        self._answer: messages.ServerFirst | None = None
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._claimed: Authenticated | None = None
        self.outcome: Authenticated | None = None

    def prepare(self, token: bytes) -> Coroutine[object, None, None] | None:
        if self._first is not None:
            return None
        try:
            first = messages.read_client_first(token)
        except SaslError:
            return None  # `evaluate` says so.
        return self._users.prepare_token(first.name, self._mechanism) if first.by_token else None

    def evaluate(self, token: bytes) -> bytes:
        if self._first is None:
            return self._begin(messages.read_client_first(token))
        if self.outcome is not None:
            raise SaslError("a token behind the last one")
        return self._end(messages.read_client_final(token))

    def _begin(self, first: messages.ClientFirst) -> bytes:
        if first.authorization and first.authorization != first.name:
            raise AuthenticationRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        # Worked out for all, so that known and unknown users take the same time.
        credential = self._unknown.credential(first.name, self._mechanism)
        known: ScramCredential | None
        if first.by_token:
            token = self._users.token(first.name, self._mechanism)
            known = None if token is None else token.credential
            self._claimed = (
                Authenticated(first.name) if token is None else Authenticated(token.owner, token.expires_ms, True)
            )
        else:
            known = self._users.user(first.name, self._mechanism)
            self._claimed = Authenticated(first.name)
        self._is_known = known is not None and known.iterations >= LEAST_ITERATIONS
        self._credential = known if known is not None and self._is_known else credential
        self._first = first
        self._answer = messages.ServerFirst(
            first.nonce + self._nonce, self._credential.salt, self._credential.iterations
        )
        return str(self._answer).encode()

    def _end(self, final: messages.ClientFinal) -> bytes:
        first, answer, credential = self._first, self._answer, self._credential
        assert first is not None and answer is not None and credential is not None
        mechanism = self._mechanism
        self._credential = None  # One proof for each exchange.
        if final.nonce != answer.nonce:
            raise SaslError("Invalid client nonce in the final client message.")
        if final.channel not in (first.header.encode(), messages.NO_BINDING.encode()):
            raise SaslError("Invalid channel binding in the final client message.")
        if len(final.proof) != mechanism.key_bytes:
            raise SaslError("Invalid client credentials")
        signed = f"{first.bare},{answer},{final.without_proof}".encode()
        key = scram.exclusive_or(final.proof, scram.signature(mechanism, credential.stored_key, signed))
        is_proved = hmac.compare_digest(scram.stored_key(mechanism, key), credential.stored_key)
        if not is_proved or not self._is_known:
            raise SaslError("Invalid client credentials")
        self.outcome = self._claimed
        return b"v=" + base64.b64encode(scram.signature(mechanism, credential.server_key, signed))
