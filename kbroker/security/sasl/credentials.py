"""Where a broker's SCRAM credentials are: users in the cluster's metadata, and delegation tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
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

    def prepare_token(self, token_id: str, mechanism: ScramMechanism) -> Coroutine[object, None, None] | None:
        """See `ScramUsers`: a token's credential is worked out when it is first used, by a thread."""
        if self._secret is None or token_id not in self._image().tokens or (token_id, mechanism) in self._tokens:
            return None
        return self._prepare(self._secret, token_id, mechanism)

    async def _prepare(self, secret: bytes, token_id: str, mechanism: ScramMechanism) -> None:
        loop = asyncio.get_running_loop()
        credential = await loop.run_in_executor(None, _credential_of, secret, token_id, mechanism)
        self._keep(token_id, mechanism, credential)

    def _credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """What `prepare_token` has worked out; some milliseconds where it was not asked, as for tokens without requests
        around them."""
        credential = self._tokens.get((token_id, mechanism))
        if credential is None:
            assert self._secret is not None
            credential = _credential_of(self._secret, token_id, mechanism)
            self._keep(token_id, mechanism, credential)
        return credential

    def _keep(self, token_id: str, mechanism: ScramMechanism, credential: ScramCredential) -> None:
        known = self._image().tokens
        self._tokens = {key: value for key, value in self._tokens.items() if key[0] in known}
        self._tokens[token_id, mechanism] = credential


def _credential_of(secret: bytes, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
    return credential_of_password(mechanism, token_password(token_hmac(secret, token_id)), LEAST_ITERATIONS)
