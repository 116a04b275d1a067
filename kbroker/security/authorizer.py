"""Whether a principal may do something to a resource: the interface of authorizers, and the memory in front of one.

Without an authorizer everything is allowed.  `acl.standard_authorizer` has the one that goes by ACLs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from kbroker.security.principal import Principal

MOST_DECISIONS = 65_536


class Operation(IntEnum):
    """What is done, as Kafka numbers it (`AclOperation`)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceKind(IntEnum):
    """What it is done to, as Kafka numbers it (`ResourceType`)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


#: The one resource of the kind CLUSTER.
CLUSTER_NAME = "kafka-cluster"


class Authorizer(Protocol):
    """Says what is allowed.  Called on the loop, so it must not wait."""

    def is_authorized(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> bool:
        """Whether the principal may do that from that address."""

    def is_authorized_for_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the principal may do that to at least one resource of that kind (`authorizeByResourceType`)."""

    def explain(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> str:
        """By which rule that is decided, for the audit log."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after every change of what is allowed."""

    def tell(self) -> None:
        """Call all who have subscribed: something besides the rules has changed for them."""


class CachedAuthorizer:
    """Remembers an authorizer's decisions until they change, a bounded number of them."""

    __slots__ = ("_authorizer", "_changed", "_decisions", "denials")

    def __init__(self, authorizer: Authorizer, changed: Callable[[], None] = lambda: None) -> None:
        self._authorizer = authorizer
        self._decisions: dict[tuple[Principal, str, Operation, ResourceKind, str | None], bool] = {}
        self._changed = changed
        self.denials: Counter[tuple[str, str]] = Counter()
        """How often clients were refused what they asked for, by kind of resource and operation, in small letters."""
        authorizer.subscribe(self._forget)

    def is_authorized(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> bool:
        """What the authorizer says, asked once until its rules change."""
        key = principal, host, operation, kind, name
        decision = self._decisions.get(key)
        if decision is None:
            self._make_room()
            decision = self._decisions[key] = self._authorizer.is_authorized(*key)
        return decision

    def is_authorized_for_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """The same for at least one resource of a kind."""
        key = principal, host, operation, kind, None
        decision = self._decisions.get(key)
        if decision is None:
            self._make_room()
            decision = self._authorizer.is_authorized_for_any(principal, host, operation, kind)
            self._decisions[key] = decision
        return decision

    def explain(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> str:
        """By which rule the authorizer decides that."""
        return self._authorizer.explain(principal, host, operation, kind, name)

    def _make_room(self) -> None:
        if len(self._decisions) >= MOST_DECISIONS:
            self._decisions.clear()

    def _forget(self) -> None:
        self._decisions.clear()
        self._changed()
