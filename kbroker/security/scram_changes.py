"""What AlterUserScramCredentials changes, judged as Kafka judges it (`ScramControlManager`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.security_image import ScramCredential, ScramKey, SecurityDelta, SecurityImage
from kbroker.schemas import wire
from kbroker.security.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramMechanism,
    credential_of_salted,
    new_salt,
    salted_password,
)

TWICE = "A user credential cannot be altered twice in the same request"
_MECHANISMS = frozenset(ScramMechanism)


def salted_row(
    user: str, mechanism: ScramMechanism, password: str, iterations: int
) -> wire.AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    """A user's password as a client sends it: salted, for this mechanism alone.  Milliseconds of work."""
    salt = new_salt()
    return wire.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password.encode(), salt, iterations),
    )


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A credential to be set; None where its mechanism is not known, or its password was salted to nothing."""

    key: ScramKey
    iterations: int
    credential: ScramCredential | None

    @classmethod
    def of(cls, key: ScramKey, iterations: int, salt: bytes, salted_password: bytes) -> ScramUpsertion:
        """Of a password that its client has salted, which is not kept."""
        credential = None
        if key.mechanism in _MECHANISMS and salted_password:
            credential = credential_of_salted(ScramMechanism(key.mechanism), salted_password, salt, iterations)
        return cls(key, iterations, credential)

    def fault(self) -> KafkaError | None:
        """Why it cannot be set."""
        fault = _fault_of(self.key)
        if fault is not None:
            return fault
        if self.iterations < LEAST_ITERATIONS:
            return KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if self.iterations > MOST_ITERATIONS:
            return KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if self.credential is None:
            # Java makes no key of nothing, and Kafka has no word for that.
            return KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
        return None


class ScramDraft:
    """What a request asks for, taken row by row: each user may be named once.

    `known` are the credentials that there are, as far as this broker has heard.
    """

    def __init__(self, known: Mapping[ScramKey, ScramCredential]) -> None:
        self._known = known
        self._changes: dict[str, tuple[ScramKey, ScramCredential | None]] = {}
        self.refused: dict[str, KafkaError] = {}
        """Why credentials of users do not change."""

    def delete(self, key: ScramKey) -> None:
        """A credential shall go."""
        self._take(key, None, _fault_of(key) or (None if key in self._known else absence()))

    def upsert(self, upsertion: ScramUpsertion) -> None:
        """A credential shall be set."""
        self._take(upsertion.key, upsertion.credential, upsertion.fault())

    def _take(self, key: ScramKey, credential: ScramCredential | None, fault: KafkaError | None) -> None:
        if key.user in self.refused:
            return
        if self._changes.pop(key.user, None) is not None:
            self.refused[key.user] = KafkaError.of(ErrorCode.DUPLICATE_RESOURCE, TWICE)
        elif fault is not None:
            self.refused[key.user] = fault
        else:
            self._changes[key.user] = key, credential

    def alteration(self) -> ScramAlteration:
        """What is left to be done."""
        return ScramAlteration(dict(self._changes.values()))


@dataclass(frozen=True, slots=True)
class ScramAlteration:
    """Credentials to be set, and, where there is none, to be deleted: judged before, and few lines for each, as it is
    planned at one go.  The outcome has the users whose credentials are gone by now."""

    changes: Mapping[ScramKey, ScramCredential | None]

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, frozenset[str]]:
        """See `SecurityChange`."""
        known = image.scram
        gone = {key for key, credential in self.changes.items() if credential is None and key not in known}
        delta = (
            {key: credential for key, credential in self.changes.items() if key not in gone} if gone else self.changes
        )
        return SecurityDelta(scram=delta), frozenset(key.user for key in gone)


def _fault_of(key: ScramKey) -> KafkaError | None:
    if not key.user:
        return KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if key.mechanism not in _MECHANISMS:
        return KafkaError.of(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def absence() -> KafkaError:
    """There is no such credential."""
    return KafkaError.of(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
