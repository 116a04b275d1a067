"""DescribeAcls (API 29): v0-v3.  CreateAcls (30): v0-v3.  DeleteAcls (31): v0-v3.

v1+: patterns that are no literals.  v2+: flexible.  Numbers that Kafka has for what it does not know (0) are refused
by hanging up, as Kafka does; numbers that this broker does not know are answered.  Without an authorizer all three
answer SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may_cluster, require_cluster
from kbroker.handlers.table import Handler
from kbroker.metadata.security_image import Acl
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.acl import audit
from kbroker.security.acl.changes import AclCreation, AclDeletion, fault_of, filter_fault, new_ids
from kbroker.security.acl.filters import AclFilter
from kbroker.security.acl.kinds import ANY, MATCH, UNKNOWN
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

REFUSED = "Cluster authorization failed."
NO_AUTHORIZER = "No Authorizer is configured."
NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"


async def handle_describe_acls(ctx: RequestContext, request: wire.DescribeAclsRequest) -> Struct | None:
    """DescribeAcls v0-v3: what a filter selects, by resource."""
    response = wire.DescribeAclsResponse
    wanted = _filter(request)
    if wanted.is_unknown:
        _hang_up(ctx)
        return None
    if not may_cluster(ctx, Operation.DESCRIBE):
        return response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=REFUSED)
    if ctx.services.authorizer is None:
        return response(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_ON_BROKER)
    pace = ctx.services.slices.pace()
    found = []
    for acl in ctx.services.metadata_cache.image.security.acls.values():
        await pace
        if wanted.selects(acl):
            found.append(acl)
    resources = []
    for (kind, name, pattern_type), acls in groupby(sorted(set(found), key=_order), key=_resource):
        await pace
        resources.append(
            response.DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    response.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in acls
                ],
            )
        )
    return response(error_message="", resources=resources)


async def handle_create_acls(ctx: RequestContext, request: wire.CreateAclsRequest) -> Struct | None:
    """CreateAcls v0-v3: a result for each, in their order."""
    response = wire.CreateAclsResponse
    acls = [
        Acl(
            each.resource_type,
            each.resource_name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in request.creations
    ]
    if any(UNKNOWN in _numbers(acl) for acl in acls):
        _hang_up(ctx)
        return None
    faults: list[KafkaError | None]
    try:
        require_cluster(ctx, Operation.ALTER)
        _require_authorizer(ctx)
        if any(ANY in _numbers(acl) or acl.pattern_type == MATCH for acl in acls):
            # Kafka makes no exception for the others of the request, and has no words for it.
            return response(results=[response.AclCreationResult(error_code=-1, error_message=None) for _ in acls])
        faults = [fault_of(acl) for acl in acls]
        sound = [acl for acl, fault in zip(acls, faults, strict=True) if fault is None]
        for acl in await ctx.services.controller.alter_security(AclCreation(new_ids(sound))) if sound else ():
            _note(ctx, acl, made=True)
    except KafkaError as error:
        faults = [error for _ in acls]
    return response(
        results=[
            response.AclCreationResult(
                error_code=0 if fault is None else fault.code, error_message="" if fault is None else fault.message
            )
            for fault in faults
        ]
    )


async def handle_delete_acls(ctx: RequestContext, request: wire.DeleteAclsRequest) -> Struct | None:
    """DeleteAcls v0-v3: for each filter, in their order, what it selected."""
    response = wire.DeleteAclsResponse
    filters = [_filter(each) for each in request.filters]
    if any(each.is_unknown for each in filters):
        _hang_up(ctx)
        return None
    faults: list[KafkaError | None]
    selected: list[list[Acl]] = [[] for _ in filters]
    try:
        require_cluster(ctx, Operation.ALTER)
        _require_authorizer(ctx)
        faults = [filter_fault(each) for each in filters]
        spared = frozenset(place for place, fault in enumerate(faults) if fault is not None)
        if len(spared) < len(filters):
            selected = await ctx.services.controller.alter_security(AclDeletion(filters, spared))
            for acl in sorted({acl for found in selected for acl in found}, key=_order):
                _note(ctx, acl, made=False)
    except KafkaError as error:
        faults = [error for _ in filters]
    return response(
        filter_results=[
            response.DeleteAclsFilterResult(
                error_code=0 if fault is None else fault.code,
                error_message=None if fault is None else fault.message,
                matching_acls=_matching(found),
            )
            for fault, found in zip(faults, selected, strict=True)
        ]
    )


def _matching(acls: Iterable[Acl]) -> list[wire.DeleteAclsResponse.DeleteAclsMatchingAcl]:
    return [
        wire.DeleteAclsResponse.DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for acl in sorted(set(acls), key=_order)
    ]


def _filter(asked: wire.DescribeAclsRequest | wire.DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _numbers(acl: Acl) -> tuple[int, int, int, int]:
    return acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type


def _resource(acl: Acl) -> tuple[int, str, int]:
    return acl.resource_type, acl.resource_name, acl.pattern_type


def _order(acl: Acl) -> tuple[object, ...]:
    return *_resource(acl), acl.host, acl.operation, acl.principal, acl.permission_type


def _require_authorizer(ctx: RequestContext) -> None:
    if ctx.services.authorizer is None:
        raise KafkaError.of(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def _note(ctx: RequestContext, acl: Acl, *, made: bool) -> None:
    audit.note_change("" if ctx.gate is None else ctx.gate.client(), ctx.connection.peer_host, acl, made=made)


def _hang_up(ctx: RequestContext) -> None:
    ctx.connection.close("an ACL request with elements that Kafka calls unknown")


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.DESCRIBE_ACLS, 0, 3, handle_describe_acls),
    Handler(ApiKey.CREATE_ACLS, 0, 3, handle_create_acls),
    Handler(ApiKey.DELETE_ACLS, 0, 3, handle_delete_acls),
)
