"""SCRAM's arithmetic (RFC 5802) and its two mechanisms, with Kafka's bounds for iterations.

What a broker keeps of a password is a `ScramCredential`: nothing of it logs a client in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from enum import IntEnum

from kbroker.metadata.security_image import ScramCredential

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16384
SALT_BYTES = 20


class ScramMechanism(IntEnum):
    """As Kafka numbers them (`ScramMechanism`)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """As SaslHandshake and settings name it."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """Its hash, as hashlib names it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """The size of its keys."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


BY_NAME = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's SaltedPassword: milliseconds of work, so not for the loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """What a client proves to have."""
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """What a server proves to have."""
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def stored_key(mechanism: ScramMechanism, key: bytes) -> bytes:
    """What a server keeps of a client's key."""
    return hashlib.new(mechanism.hash_name, key).digest()


def signature(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """An exchange's signature by a stored key or a server's key."""
    return hmac.digest(key, message, mechanism.hash_name)


def exclusive_or(left: bytes, right: bytes) -> bytes:
    """Of two byte strings of one length."""
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


def credential_of_salted(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password that was salted elsewhere."""
    return ScramCredential(
        salt, stored_key(mechanism, client_key(mechanism, salted)), server_key(mechanism, salted), iterations
    )


def new_salt() -> bytes:
    """For one credential."""
    return secrets.token_bytes(SALT_BYTES)


def is_password(mechanism: ScramMechanism, password: str, credential: ScramCredential) -> bool:
    """Whether a credential is that of a password, in the same time for each.  Milliseconds of work."""
    salted = salted_password(mechanism, password.encode(), credential.salt, credential.iterations)
    found = stored_key(mechanism, client_key(mechanism, salted))
    return hmac.compare_digest(found, credential.stored_key)


def credential_of_password(
    mechanism: ScramMechanism, password: str, iterations: int = LEAST_ITERATIONS, salt: bytes | None = None
) -> ScramCredential:
    """The credential of a password, with a salt of its own.  Milliseconds of work."""
    salt = new_salt() if salt is None else salt
    salted = salted_password(mechanism, password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)
