"""Users as Kafka's storage tool takes them: `--add-scram 'SCRAM-SHA-256=[name=alice,password=…]'`.

Besides these: `iterations`, `salt` and `saltedpassword` (in base64; then without `password`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

from kbroker.metadata.security_image import ScramCredential, ScramKey
from kbroker.security.scram import (
    BY_NAME,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramMechanism,
    credential_of_salted,
    new_salt,
    salted_password,
)

_ARGUMENT = re.compile(r"([A-Z0-9-]+)=\[(.*)\]", re.DOTALL)
_PAIR = re.compile(r'\s*([a-z]+)=(?:"([^"]*)"|([^,]*))\s*(?:,|$)')
_NAMES = frozenset({"name", "password", "salt", "saltedpassword", "iterations"})


class ScramArgumentError(ValueError):
    """An argument that makes no user.  The message never quotes a value, as that may be a password."""


def parse_scram_arguments(arguments: Sequence[str]) -> dict[ScramKey, ScramCredential]:
    """The credentials that arguments give.  ScramArgumentError.  Milliseconds of work for each."""
    found: dict[ScramKey, ScramCredential] = {}
    for argument in arguments:
        match = _ARGUMENT.fullmatch(argument)
        if match is None:
            raise ScramArgumentError("a SCRAM user is MECHANISM=[name=…,password=…]")
        mechanism = BY_NAME.get(match[1])
        if mechanism is None:
            raise ScramArgumentError(f"the mechanism {match[1]} is none of {', '.join(BY_NAME)}")
        pairs = _pairs(match[2])
        if not pairs.get("name"):
            raise ScramArgumentError("a SCRAM user has no name")
        key = ScramKey(pairs["name"], mechanism.value)
        if key in found:
            raise ScramArgumentError(f"the {match[1]} user {key.user} is given twice")
        found[key] = _credential(mechanism, pairs)
    return found


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None or match[1] not in _NAMES or match[1] in pairs:
            raise ScramArgumentError(f"a SCRAM user has {', '.join(sorted(_NAMES))}, each once")
        pairs[match[1]] = match[3] if match[2] is None else match[2]
        at = match.end()
    return pairs


def _credential(mechanism: ScramMechanism, pairs: dict[str, str]) -> ScramCredential:
    try:
        iterations = int(pairs.get("iterations", LEAST_ITERATIONS))
        salt = base64.b64decode(pairs["salt"], validate=True) if "salt" in pairs else new_salt()
        salted = base64.b64decode(pairs.get("saltedpassword", ""), validate=True)
    except (binascii.Error, ValueError):
        raise ScramArgumentError("iterations are a number, salt and saltedpassword base64") from None
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ScramArgumentError(f"iterations are from {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
    if ("password" in pairs) == ("saltedpassword" in pairs):
        raise ScramArgumentError("a SCRAM user has either password or saltedpassword")
    if "password" in pairs:
        if not pairs["password"]:
            raise ScramArgumentError("a SCRAM user's password is empty")
        salted = salted_password(mechanism, pairs["password"].encode(), salt, iterations)
    elif "salt" not in pairs:
        raise ScramArgumentError("saltedpassword needs its salt")
    return credential_of_salted(mechanism, salted, salt, iterations)
