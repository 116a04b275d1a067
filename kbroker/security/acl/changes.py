"""What CreateAcls and DeleteAcls change of the cluster's ACLs, judged as Kafka judges it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbroker.errors import InvalidRequestError, KafkaError
from kbroker.metadata.security_image import Acl, SecurityDelta, SecurityImage
from kbroker.security.acl.filters import AclFilter
from kbroker.security.acl.kinds import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES
from kbroker.security.authorizer import CLUSTER_NAME, ResourceKind

_UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class AclCreation:
    """ACLs to be made, by the ids that they get (`id_of`); one whose id is there already stays as it is."""

    acls: Mapping[bytes, Acl]

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, list[Acl]]:
        """What is new, and the same for the audit log."""
        made: dict[bytes, Acl | None] = {key: acl for key, acl in self.acls.items() if key not in image.acls}
        return SecurityDelta(acls=made), [acl for acl in made.values() if acl is not None]


@dataclass(frozen=True, slots=True)
class AclDeletion:
    """ACLs to be deleted, by their ids."""

    keys: Sequence[bytes]

    def plan(self, image: SecurityImage) -> tuple[SecurityDelta, list[Acl]]:
        """What goes, and the same for the audit log."""
        gone = {key: acl for key in self.keys if (acl := image.acls.get(key)) is not None}
        return SecurityDelta(acls=dict.fromkeys(gone)), list(gone.values())


def id_of(acl: Acl) -> bytes:
    """The id of a new ACL: the same for the same ACL, so that two requests that make it at once make one.  Those that
    Kafka has made have others."""
    return hashlib.blake2b(repr(tuple(map(str, acl))).encode(), digest_size=16).digest()


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
