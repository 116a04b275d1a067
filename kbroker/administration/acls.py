"""ACLs: described, created, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker.errors import refuse
from kbroker.metadata.security_image import Acl
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.administration.admin import Admin
    from kbroker.security.acl.filters import AclFilter


async def describe_acls(admin: Admin, wanted: AclFilter) -> set[Acl]:
    """The ACLs that a filter matches."""
    answer = await admin.ask(
        wire.DescribeAclsResponse,
        wire.DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission_type,
        ),
    )
    refuse(answer.error_code, answer.error_message)
    return {_acl(resource, acl) for resource in answer.resources for acl in resource.acls}


async def create_acls(admin: Admin, acls: Sequence[Acl]) -> list[wire.CreateAclsResponse.AclCreationResult]:
    """Create ACLs; a row for each, with its error."""
    request = wire.CreateAclsRequest
    creations = [
        request.AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for acl in acls
    ]
    return (await admin.ask_controller(wire.CreateAclsResponse, request(creations=creations))).results


async def delete_acls(admin: Admin, filters: Iterable[AclFilter]) -> set[Acl]:
    """Delete the ACLs that filters match; those that are gone."""
    request = wire.DeleteAclsRequest
    wanted = [
        request.DeleteAclsFilter(
            resource_type_filter=each.resource_type,
            resource_name_filter=each.resource_name,
            pattern_type_filter=each.pattern_type,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for each in filters
    ]
    gone = set()
    for result in (await admin.ask_controller(wire.DeleteAclsResponse, request(filters=wanted))).filter_results:
        refuse(result.error_code, result.error_message)
        for row in result.matching_acls:
            refuse(row.error_code, row.error_message)
            gone.add(_acl(row, row))
    return gone


def _acl(
    resource: wire.DescribeAclsResponse.DescribeAclsResource | wire.DeleteAclsResponse.DeleteAclsMatchingAcl,
    rule: wire.DescribeAclsResponse.AclDescription | wire.DeleteAclsResponse.DeleteAclsMatchingAcl,
) -> Acl:
    return Acl(
        resource.resource_type,
        resource.resource_name,
        resource.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )
