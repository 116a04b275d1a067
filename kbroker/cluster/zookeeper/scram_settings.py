"""SCRAM credentials among a user's settings in ZooKeeper, as Kafka writes them:

/config/users/alice    {"version":1,"config":{"SCRAM-SHA-256":"salt=…,stored_key=…,server_key=…,iterations=4096"}}
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping

from kbroker.metadata.security_image import ScramCredential, ScramKey
from kbroker.security.scram import BY_NAME

logger = logging.getLogger("kbroker.cluster")

_FIELDS = ("salt", "stored_key", "server_key", "iterations")
MOST_ITERATIONS = 2**31 - 1


def credential_text(credential: ScramCredential) -> str:
    """A credential as a setting's value (`ScramCredentialUtils`)."""
    parts = (credential.salt, credential.stored_key, credential.server_key)
    texts = [*(base64.b64encode(part).decode() for part in parts), str(credential.iterations)]
    return ",".join(f"{name}={text}" for name, text in zip(_FIELDS, texts, strict=True))


def parse_credential(text: str) -> ScramCredential:
    """ValueError, without a word of the text, for what is none."""
    pairs = dict(pair.strip().split("=", 1) for pair in text.split(",") if "=" in pair)
    if set(pairs) != set(_FIELDS):
        raise ValueError("it is no SCRAM credential")
    try:
        salt, stored_key, server_key = (base64.b64decode(pairs[name], validate=True) for name in _FIELDS[:3])
        iterations = int(pairs["iterations"])
    except (binascii.Error, ValueError):
        raise ValueError("it is no SCRAM credential") from None
    if not 0 < iterations <= MOST_ITERATIONS:
        raise ValueError("its iterations are no number of them")
    return ScramCredential(salt, stored_key, server_key, iterations)


def credentials_of(user: str, settings: Mapping[str, str]) -> dict[ScramKey, ScramCredential | None]:
    """A user's credentials; None for each that there is not.  What makes no sense is none, and logged."""
    found: dict[ScramKey, ScramCredential | None] = {}
    for name, mechanism in BY_NAME.items():
        key = ScramKey(user, mechanism.value)
        found[key] = None
        if name in settings:
            try:
                found[key] = parse_credential(settings[name])
            except ValueError as error:
                logger.error("%s of user %s makes no sense and is left out: %s", name, user, error)
    return found


def with_credentials(settings: Mapping[str, str], changes: Mapping[ScramKey, ScramCredential | None]) -> dict[str, str]:
    """A user's settings after changes of its credentials; all others stay."""
    names = {mechanism.value: name for name, mechanism in BY_NAME.items()}
    changed = dict(settings)
    for key, credential in changes.items():
        if credential is None:
            changed.pop(names[key.mechanism], None)
        else:
            changed[names[key.mechanism]] = credential_text(credential)
    return changed
