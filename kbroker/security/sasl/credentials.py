"""Where a broker's SCRAM credentials are: users in the cluster's metadata, and delegation tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.metadata.security_image import ScramCredential, ScramKey, SecurityImage
from kbroker.security.delegation_tokens import token_hmac, token_password
from kbroker.security.sasl.scram_server import TokenCredential
from kbroker.security.scram import LEAST_ITERATIONS, ScramMechanism, credential_of_password

if TYPE_CHECKING:
    from kbroker.clock import Clock


class StoredCredentials:
    """See `ScramUsers`.  `image`: the metadata by now; `secret`: `delegation.token.secret.key`, None without tokens."""

    def __init__(self, image: Callable[[], SecurityImage], secret: bytes | None, clock: Clock) -> None:
        self._image = image
        self._secret = secret
        self._clock = clock
        self._tokens: dict[tuple[str, ScramMechanism], ScramCredential] = {}

    def user(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """What the metadata have of a user."""
        return self._image().scram.get(ScramKey(name, mechanism))

    def token(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        """A token that has not expired, with its HMAC as the password."""
        token = self._image().tokens.get(token_id)
        if token is None or self._secret is None or token.expires_ms <= self._clock.now_ms():
            return None
        kind, _, name = token.owner.partition(":")
        if kind != "User":
            return None  # Its client would be a user of that name.
        return TokenCredential(name, self._credential(token_id, mechanism), token.expires_ms)

    def _credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """Worked out when the token is first used: some milliseconds, once."""
        key = token_id, mechanism
        credential = self._tokens.get(key)
        if credential is None:
            assert self._secret is not None
            known = self._image().tokens
            self._tokens = {key: value for key, value in self._tokens.items() if key[0] in known}
            password = token_password(token_hmac(self._secret, token_id))
            credential = self._tokens[key] = credential_of_password(mechanism, password, LEAST_ITERATIONS)
        return credential
