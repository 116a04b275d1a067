"""The authorizer of Kafka 4 and the one for ZooKeeper, over the ACLs of the cluster's image."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker.security.acl.audit import rule_text
from kbroker.security.acl.index import EVERYBODY, AclIndex
from kbroker.security.acl.settings import AuthorizerSettings, authorizer_settings
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.principal import Principal

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, MetadataDelta
    from kbroker.metadata.security_image import Acl

_SOME_NAME = "hardcode"
"""Kafka asks for a resource of this name first, when a client asks whether it may do something to any."""


class StandardAuthorizer:
    """Decides by super users, by rules, and, where no rule concerns a resource, by `allow.everyone.if.no.acl.found`.

    The classes for ZooKeeper differ from the one of Kafka 4 in `is_authorized_for_any`, where everyone is allowed what
    no rule is about: there it takes a denial for all resources to be refused.

    A user who is called `*` bears the name by which rules are for everyone.  The class of Kafka 4 fails at every
    question about such a user that is no super user, so that none gets anything; those for ZooKeeper give what
    everyone has.
    """

    __slots__ = ("_changed", "_index", "_settings")

    def __init__(self, settings: AuthorizerSettings, acls: Iterable[Acl] = ()) -> None:
        self._settings = settings
        self._index = AclIndex(acls)
        self._changed: list[Callable[[], None]] = []

    def _gets_nothing(self, principal: str) -> bool:
        return principal == EVERYBODY and not self._settings.allows_unless_denied

    def is_authorized(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> bool:
        """Whether the principal may do that from that address."""
        text = str(principal)
        if text in self._settings.super_users:
            return True
        if self._gets_nothing(text):
            return False
        finding = self._index.find(text, java_address(host), operation, kind, name)
        return finding.is_allowed or (not finding.concerned and self._settings.allow_everyone)

    def is_authorized_for_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the principal may do that to at least one resource of that kind."""
        text, address = str(principal), java_address(host)
        if text in self._settings.super_users:
            return True
        if self._gets_nothing(text):
            return False
        if self._settings.allow_everyone and self._settings.allows_unless_denied:
            return not self._index.denies_all(text, address, operation, kind)
        return self.is_authorized(principal, host, operation, kind, _SOME_NAME) or self._index.allows_any(
            text, address, operation, kind
        )

    def explain(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> str:
        """By which rule a decision is made, in Kafka's words."""
        text = str(principal)
        if text in self._settings.super_users:
            return "SuperUser"
        if self._gets_nothing(text):
            return "DefaultDeny"
        finding = self._index.find(text, java_address(host), operation, kind, name)
        if finding.rule is not None:
            return f"MatchingAcl(acl={rule_text(finding.rule)})"
        return "DefaultAllow" if self._settings.allow_everyone and not finding.concerned else "DefaultDeny"

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after every change of what is allowed."""
        self._changed.append(changed)

    def apply(self, old: ClusterImage, new: ClusterImage, delta: MetadataDelta) -> None:
        """Follow the images of a cluster."""
        changes = delta.security.acls
        if not changes:
            return
        known = old.security.acls
        for key, acl in changes.items():
            before = known.get(key)
            if before is not None:
                self._index.remove(before)
            if acl is not None:
                self._index.add(acl)
        self.tell()

    def tell(self) -> None:
        """Have all who keep decisions ask again."""
        for changed in self._changed:
            changed()


def authorizer_of(config: BrokerConfig, cache: MetadataCache) -> StandardAuthorizer | None:
    """The authorizer that the settings ask for, which follows the images of `cache`."""
    settings = authorizer_settings(config)
    if settings is None:
        return None
    authorizer = StandardAuthorizer(settings, cache.image.security.acls.values())
    cache.subscribe(authorizer.apply)
    return authorizer


def java_address(host: str) -> str:
    """An address as Java writes it, which rules have to be for: all parts of IPv6, and IPv4 as itself."""
    if ":" not in host:
        return host
    address, percent, scope = host.partition("%")
    mapped = address.lower().removeprefix("::ffff:")
    if "." in mapped:
        return mapped
    head, gap, tail = address.lower().partition("::")
    parts = head.split(":") if head else []
    behind = tail.split(":") if tail else []
    if gap:
        parts += ["0"] * (8 - len(parts) - len(behind))
    return ":".join(part.lstrip("0") or "0" for part in (*parts, *behind)) + percent + scope
