"""What the cluster's metadata say of security: ACLs, SCRAM credentials and delegation tokens, and their changes.

A `SecurityChange` is what a request asks for.  The controller calls its `plan` with what it has by then, stores the
delta and publishes it, so that two changes never see the same state.  A change is pure and can be pickled: workers send
theirs to the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Outcome = TypeVar("Outcome")
_Outcome = TypeVar("_Outcome", covariant=True)


class Acl(NamedTuple):
    """One binding; numbers are Kafka's (`ResourceType`, `PatternType`, `AclOperation`, `AclPermissionType`).

    `principal` is the kind and the name, such as `User:alice`; `host` an address or `*`."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramKey(NamedTuple):
    """A user and the mechanism as Kafka numbers it (`ScramMechanism`): 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What the broker has of a password (RFC 5802)."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = 4096


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token (KIP-48) without its HMAC, which the broker's secret gives.  Principals are texts such as `User:alice`,
    times milliseconds since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class SecurityDelta:
    """What is added or replaced, by its key; None: what is removed."""

    acls: Mapping[bytes, Acl | None] = field(default_factory=dict)
    scram: Mapping[ScramKey, ScramCredential | None] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken | None] = field(default_factory=dict)

    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.acls or self.scram or self.tokens)


@dataclass(frozen=True, slots=True)
class SecurityImage:
    """ACLs by their id (16 bytes), credentials by user and mechanism, tokens by their id."""

    acls: Mapping[bytes, Acl] = field(default_factory=dict)
    scram: Mapping[ScramKey, ScramCredential] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)

    def apply(self, delta: SecurityDelta) -> SecurityImage:
        """The image after `delta`."""
        return SecurityImage(
            _after(self.acls, delta.acls), _after(self.scram, delta.scram), _after(self.tokens, delta.tokens)
        )

    def difference(self, new: SecurityImage) -> SecurityDelta:
        """The delta with which `apply` gives `new`."""
        return SecurityDelta(
            _difference(self.acls, new.acls),
            _difference(self.scram, new.scram),
            _difference(self.tokens, new.tokens),
        )


class SecurityChange(Protocol[_Outcome]):
    """See the module."""

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, _Outcome]:
        """What changes, and what the request is answered with."""


def _after(old: Mapping[_Key, _Value], changes: Mapping[_Key, _Value | None]) -> Mapping[_Key, _Value]:
    if not changes:
        return old
    values = dict(old)
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


def _difference(old: Mapping[_Key, _Value], new: Mapping[_Key, _Value]) -> dict[_Key, _Value | None]:
    if old is new:
        return {}
    changes: dict[_Key, _Value | None] = {key: None for key in old if key not in new}
    changes.update((key, value) for key, value in new.items() if old.get(key) != value)
    return changes
