"""The audit log: who was allowed or refused what, by which rule, in the words of Kafka's `kafka.authorizer.logger`.

Denials are INFO and what is allowed DEBUG; what only tells a client of its rights, or leaves something out of a list,
is TRACE.  Changes of ACLs are always INFO.  Kafka also counts how often a request names a resource.
"""

from __future__ import annotations

import logging

from kbroker.metadata.security_image import Acl
from kbroker.protocol.api import ApiKey
from kbroker.security.acl.kinds import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES, camel
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.principal import Principal

KAFKAS_NAME = "kafka.authorizer.logger"
TRACE = 5
logger = logging.getLogger("kbroker.authorizer")


def notes_all() -> bool:
    """Whether what is allowed is noted, too."""
    return logger.isEnabledFor(logging.DEBUG)


def is_noted(*, allowed: bool, quietly: bool) -> bool:
    """Whether such a decision is noted."""
    return logger.isEnabledFor(level(allowed=allowed, quietly=quietly))


def note(
    principal: Principal,
    host: str,
    api_key: int,
    operation: Operation,
    kind: ResourceKind,
    name: str,
    *,
    allowed: bool,
    rule: str,
    quietly: bool,
) -> None:
    """Note a decision.  `quietly`: the client did not ask for that resource."""
    logger.log(
        level(allowed=allowed, quietly=quietly),
        "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s "
        "based on rule %s",
        principal,
        "Allowed" if allowed else "Denied",
        operation.name,
        host,
        camel(kind.name),
        name,
        ApiKey(api_key).message_name,
        rule,
    )


def level(*, allowed: bool, quietly: bool) -> int:
    """How important a decision is."""
    if quietly:
        return TRACE
    return logging.DEBUG if allowed else logging.INFO


def note_change(principal: str, host: str, acl: Acl, *, made: bool) -> None:
    """Note that a rule was made or deleted."""
    logger.info("Principal = %s from host = %s %s %s", principal, host, "added" if made else "deleted", rule_text(acl))


def rule_text(acl: Acl) -> str:
    """A rule as Kafka writes it."""
    return (
        f"StandardAcl[resourceType={RESOURCES.get(acl.resource_type, 'UNKNOWN')}, resourceName={acl.resource_name}, "
        f"patternType={PATTERNS.get(acl.pattern_type, 'UNKNOWN')}, principal={acl.principal}, host={acl.host}, "
        f"operation={OPERATIONS.get(acl.operation, 'UNKNOWN')}, "
        f"permissionType={PERMISSIONS.get(acl.permission_type, 'UNKNOWN')}]"
    )
