"""What CreateAcls and DeleteAcls change of the cluster's ACLs, judged as Kafka judges it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from kbroker.errors import InvalidRequestError, KafkaError
from kbroker.metadata.security_image import Acl, SecurityDelta, SecurityImage
from kbroker.security.acl.filters import AclFilter
from kbroker.security.acl.kinds import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES
from kbroker.security.authorizer import CLUSTER_NAME, ResourceKind

_UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class AclCreation:
    """ACLs to be made, with the ids that they get; one that is there already stays."""

    acls: Sequence[tuple[bytes, Acl]]

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, list[Acl]]:
        """What is new, and the same for the audit log."""
        known = set(image.acls.values())
        made: dict[bytes, Acl | None] = {}
        added = []
        for key, acl in self.acls:
            if acl not in known:
                known.add(acl)
                made[key] = acl
                added.append(acl)
        return SecurityDelta(acls=made), added


@dataclass(frozen=True, slots=True)
class AclDeletion:
    """ACLs to be deleted: all that one of the filters selects."""

    filters: Sequence[AclFilter]
    spared: frozenset[int] = field(default=frozenset())
    """The places of filters that select nothing."""

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, list[list[Acl]]]:
        """What goes, and for each filter what it selects, be it selected by others, too."""
        gone: dict[bytes, Acl | None] = {}
        selected: list[list[Acl]] = []
        for place, each in enumerate(self.filters):
            found: list[Acl] = []
            selected.append(found)
            if place in self.spared:
                continue
            for key, acl in image.acls.items():
                if each.selects(acl):
                    gone[key] = None
                    found.append(acl)
        return SecurityDelta(acls=gone), selected


def new_ids(acls: Sequence[Acl]) -> list[tuple[bytes, Acl]]:
    """The ACLs with ids."""
    return [(uuid.uuid4().bytes, acl) for acl in acls]


def fault_of(acl: Acl) -> KafkaError | None:
    """Why an ACL can't be made."""
    if acl.resource_type == ResourceKind.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        return InvalidRequestError("Invalid empty resource name")
    for what, number, names in (
        ("resourceType", acl.resource_type, RESOURCES),
        ("patternType", acl.pattern_type, PATTERNS),
        ("operation", acl.operation, OPERATIONS),
        ("permissionType", acl.permission_type, PERMISSIONS),
    ):
        if names.get(number, _UNKNOWN) == _UNKNOWN:
            return InvalidRequestError(f"Invalid {what} {_UNKNOWN}")
    if ":" not in acl.principal:
        return InvalidRequestError(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    return None


def filter_fault(wanted: AclFilter) -> KafkaError | None:
    """Why a filter can't select what is to be deleted."""
    if wanted.resource_type not in RESOURCES or wanted.pattern_type not in PATTERNS:
        return InvalidRequestError("Unknown patternFilter.")
    if wanted.operation not in OPERATIONS or wanted.permission_type not in PERMISSIONS:
        return InvalidRequestError("Unknown entryFilter.")
    return None
