"""Which rules a filter of DescribeAcls and DeleteAcls selects (Kafka's `AclBindingFilter`)."""

from __future__ import annotations

from dataclasses import dataclass

from kbroker.metadata.security_image import Acl
from kbroker.security.acl.kinds import ANY, MATCH, UNKNOWN, WILDCARD, PatternType


@dataclass(frozen=True, slots=True)
class AclFilter:
    """None and ANY select everything.  The pattern type MATCH selects what concerns the resource of that name: rules
    for it, for a beginning of its name, and for all resources."""

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission_type: int = ANY

    @property
    def is_unknown(self) -> bool:
        """Whether a number in it means nothing."""
        return UNKNOWN in (self.resource_type, self.pattern_type, self.operation, self.permission_type)

    def selects(self, acl: Acl) -> bool:
        """Whether it selects the rule."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._selects_pattern(acl)
        )

    def _selects_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type != MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD
