"""What AlterUserScramCredentials changes, judged as Kafka judges it (`ScramControlManager`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.security_image import ScramCredential, ScramKey, SecurityDelta, SecurityImage
from kbroker.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS, ScramMechanism, credential_of_salted

TWICE = "A user credential cannot be altered twice in the same request"
_MECHANISMS = frozenset(ScramMechanism)


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A credential to be set; None where its mechanism is not known."""

    key: ScramKey
    iterations: int
    credential: ScramCredential | None

    @classmethod
    def of(cls, key: ScramKey, iterations: int, salt: bytes, salted_password: bytes) -> ScramUpsertion:
        """Of a password that its client has salted, which is not kept."""
        credential = None
        if key.mechanism in _MECHANISMS:
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
        return None


Results = Sequence[tuple[str, KafkaError | None]]


@dataclass(frozen=True, slots=True)
class ScramAlteration:
    """A request, which may name each user once; the outcome says for each user why its credential does not change."""

    deletions: Sequence[ScramKey]
    upsertions: Sequence[ScramUpsertion]

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, Results]:
        """See `SecurityChange`."""
        changes: dict[str, tuple[ScramKey, ScramCredential | None]] = {}
        refused: dict[str, KafkaError] = {}
        rows = [
            *((key, None, _fault_of(key) or _absence(key, image.scram)) for key in self.deletions),
            *((each.key, each, each.fault()) for each in self.upsertions),
        ]
        for key, upsertion, fault in rows:
            if key.user in refused:
                continue
            if changes.pop(key.user, None) is not None:
                refused[key.user] = KafkaError.of(ErrorCode.DUPLICATE_RESOURCE, TWICE)
            elif fault is not None:
                refused[key.user] = fault
            else:
                changes[key.user] = key, None if upsertion is None else upsertion.credential
        return SecurityDelta(scram=dict(changes.values())), [*((user, None) for user in changes), *refused.items()]


def _fault_of(key: ScramKey) -> KafkaError | None:
    if not key.user:
        return KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if key.mechanism not in _MECHANISMS:
        return KafkaError.of(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _absence(key: ScramKey, known: Mapping[ScramKey, ScramCredential]) -> KafkaError | None:
    if key in known:
        return None
    return KafkaError.of(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
