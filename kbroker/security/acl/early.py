"""What is allowed before a node has the cluster's ACLs.

A controller answers votes and fetches before it knows what is committed.  Until then super users may do everything and
others nothing, as with Kafka's `StandardAuthorizer`: an ACL that denies may not have been read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.security.acl.settings import authorizer_settings

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.security.authorizer import Authorizer, Operation, ResourceKind
    from kbroker.security.principal import Principal


class EarlyAuthorizer:
    """`rules` behind super users alone, until `open`."""

    __slots__ = ("_is_open", "_rules", "_super_users")

    def __init__(self, rules: Authorizer, config: BrokerConfig) -> None:
        settings = authorizer_settings(config)
        self._super_users = frozenset[str]() if settings is None else settings.super_users
        self._rules = rules
        self._is_open = False

    def open(self) -> None:
        """The ACLs are there."""
        self._is_open = True
        self._rules.tell()

    def is_authorized(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> bool:
        """Whether the principal may do that from that address."""
        if not self._is_open:
            return str(principal) in self._super_users
        return self._rules.is_authorized(principal, host, operation, kind, name)

    def is_authorized_for_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the principal may do that to at least one resource of that kind."""
        if not self._is_open:
            return str(principal) in self._super_users
        return self._rules.is_authorized_for_any(principal, host, operation, kind)

    def explain(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> str:
        """By which rule a decision is made."""
        if not self._is_open:
            return "SuperUser" if str(principal) in self._super_users else "DefaultDeny"
        return self._rules.explain(principal, host, operation, kind, name)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after every change of what is allowed."""
        self._rules.subscribe(changed)

    def tell(self) -> None:
        """Have all who keep decisions ask again."""
        self._rules.tell()
