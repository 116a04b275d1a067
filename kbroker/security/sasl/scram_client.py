"""The client's end of SCRAM."""

from __future__ import annotations

import base64
import hmac
import secrets

from kbroker.security import scram
from kbroker.security.sasl import scram_messages as messages
from kbroker.security.sasl.mechanism import ClientMechanism, Login, SaslError
from kbroker.security.scram import LEAST_ITERATIONS, ScramMechanism

_NONCE_BYTES = 24
MOST_ITERATIONS_OF_A_SERVER = 10_000_000
"""A server could hold its clients up with more."""


class ScramClient(ClientMechanism):
    """Proves that it has the password, and has the server prove that it has the credential.

    `evaluate` of the server's first message takes milliseconds (`salted_password`).
    """

    def __init__(self, mechanism: ScramMechanism, login: Login, nonce: str | None = None) -> None:
        self.name = mechanism.sasl_name
        self._mechanism = mechanism
        self._login = login
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._expected: bytes | None = None
        self.complete = False

    @property
    def _bare(self) -> str:
        token = f",{messages.TOKEN_EXTENSION}=true" if self._login.by_token else ""
        return f"n={messages.escaped(self._login.name)},r={self._nonce}{token}"

    def first(self) -> bytes:
        return (messages.NO_BINDING + self._bare).encode()

    def evaluate(self, token: bytes) -> bytes | None:
        if self._expected is None:
            return self._prove(messages.read_server_first(token))
        if self.complete or not hmac.compare_digest(messages.read_server_final(token), self._expected):
            raise SaslError("Invalid server signature in server final message")
        self.complete = True
        return None

    def _prove(self, first: messages.ServerFirst) -> bytes:
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise SaslError("Invalid server nonce: does not start with client nonce")
        if first.iterations < LEAST_ITERATIONS:
            raise SaslError(f"Requested iterations {first.iterations} is less than the minimum {LEAST_ITERATIONS}")
        if first.iterations > MOST_ITERATIONS_OF_A_SERVER:
            raise SaslError(f"Requested iterations {first.iterations} are more than this client works out")
        mechanism = self._mechanism
        salted = scram.salted_password(mechanism, self._login.password.encode(), first.salt, first.iterations)
        binding = base64.b64encode(messages.NO_BINDING.encode()).decode()
        without_proof = f"c={binding},r={first.nonce}"
        signed = f"{self._bare},{first},{without_proof}".encode()
        key = scram.client_key(mechanism, salted)
        proof = scram.exclusive_or(key, scram.signature(mechanism, scram.stored_key(mechanism, key), signed))
        self._expected = scram.signature(mechanism, scram.server_key(mechanism, salted), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
