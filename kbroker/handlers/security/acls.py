"""DescribeAcls (API 29): v0-v3.  CreateAcls (30): v0-v3.  DeleteAcls (31): v0-v3.

v1+: patterns that are no literals.  v2+: flexible.  Numbers that Kafka has for what it does not know (0) are refused
by hanging up, as Kafka does; numbers that this broker does not know are answered.  Without an authorizer all three
answer SECURITY_DISABLED.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError, bare
from kbroker.gate.access import may_cluster, require_cluster
from kbroker.handlers.table import Handler
from kbroker.metadata.security_image import Acl
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.acl import audit
from kbroker.security.acl.changes import AclCreation, AclDeletion, fault_of, filter_fault, id_of
from kbroker.security.acl.filters import AclFilter
from kbroker.security.acl.kinds import ANY, MATCH, UNKNOWN
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

PORTION = 50
"""So many ACLs are made or deleted at a time: all who keep decisions hear of them before the next ones."""
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
    pace = ctx.services.slices.pace()
    acls: list[Acl] = []
    numbers: set[int] = set()
    is_general = False
    for each in request.creations:
        await pace
        acl = _acl(each)
        numbers.update(_numbers(acl))
        is_general = is_general or acl.pattern_type == MATCH
        acls.append(acl)
    if UNKNOWN in numbers:
        _hang_up(ctx)
        return None
    faults: list[KafkaError | None] = []
    try:
        require_cluster(ctx, Operation.ALTER)
        _require_authorizer(ctx)
        if ANY in numbers or is_general:
            # Kafka makes no exception for the others of the request, and has no words for it.
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
        for acl in acls:
            await pace
            faults.append(fault_of(acl))
        await _create(ctx, {acl: None for acl, fault in zip(acls, faults, strict=True) if fault is None}, pace)
    except KafkaError as error:
        faults = [bare(error)] * len(acls)
    results = []
    for fault in faults:
        await pace
        text = "" if fault is None else fault.message
        results.append(response.AclCreationResult(error_code=0 if fault is None else fault.code, error_message=text))
    return response(results=results)


async def _create(ctx: RequestContext, wanted: dict[Acl, None], pace: Pace) -> None:
    for acl in ctx.services.metadata_cache.image.security.acls.values():
        await pace
        wanted.pop(acl, None)
    new: dict[bytes, Acl] = {}
    for place, acl in enumerate(wanted, 1):
        await pace
        new[id_of(acl)] = acl
        if len(new) == PORTION or place == len(wanted):
            for made in await ctx.services.administration.alter_security(AclCreation(new)):
                _note(ctx, made, made=True)
            new = {}


async def handle_delete_acls(ctx: RequestContext, request: wire.DeleteAclsRequest) -> Struct | None:
    """DeleteAcls v0-v3: for each filter, in their order, what it selected, be it selected by others, too."""
    response = wire.DeleteAclsResponse
    pace = ctx.services.slices.pace()
    filters: list[AclFilter] = []
    is_unknown = False
    for each in request.filters:
        await pace
        filters.append(_filter(each))
        is_unknown = is_unknown or filters[-1].is_unknown
    if is_unknown:
        _hang_up(ctx)
        return None
    faults: list[KafkaError | None] = []
    selected: list[list[Acl]] = []
    try:
        require_cluster(ctx, Operation.ALTER)
        _require_authorizer(ctx)
        for wanted in filters:
            await pace
            faults.append(filter_fault(wanted))
        selected = await _delete(ctx, filters, faults, pace)
    except KafkaError as error:
        faults = [bare(error)] * len(filters)
        selected = [[] for _ in filters]
    results = []
    for fault, found in zip(faults, selected, strict=True):
        await pace
        result = response.DeleteAclsFilterResult(
            error_code=0 if fault is None else fault.code, error_message=None if fault is None else fault.message
        )
        for acl in found:
            await pace
            result.matching_acls.append(response.DeleteAclsMatchingAcl(error_message=None, **acl._asdict()))
        results.append(result)
    return response(filter_results=results)


async def _delete(
    ctx: RequestContext, filters: list[AclFilter], faults: list[KafkaError | None], pace: Pace
) -> list[list[Acl]]:
    known = ctx.services.metadata_cache.image.security.acls
    named: dict[str, list[tuple[bytes, Acl]]] = {}
    for key, acl in known.items():
        await pace
        named.setdefault(acl.resource_name, []).append((key, acl))
    gone: dict[bytes, None] = {}
    selected: list[list[Acl]] = []
    for wanted, fault in zip(filters, faults, strict=True):
        found: list[Acl] = []
        selected.append(found)
        if fault is not None:
            continue
        is_exact = wanted.resource_name is not None and wanted.pattern_type != MATCH
        for key, acl in named.get(wanted.resource_name or "", ()) if is_exact else known.items():
            await pace
            if wanted.selects(acl):
                gone[key] = None
                found.append(acl)
        found.sort(key=_order)
        await pace
    keys: list[bytes] = []
    for place, key in enumerate(gone, 1):
        await pace
        keys.append(key)
        if len(keys) == PORTION or place == len(gone):
            for acl in await ctx.services.administration.alter_security(AclDeletion(keys)):
                _note(ctx, acl, made=False)
            keys = []
    return selected


def _acl(asked: wire.CreateAclsRequest.AclCreation) -> Acl:
    return Acl(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


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
