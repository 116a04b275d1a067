"""A broker's share of AlterConfigs and IncrementalAlterConfigs in a KRaft cluster; the rest is the controller's.

As Kafka's `ConfigAdminManager.preprocess`: resources and keys that are named twice and values that are missing are
refused; loggers are this process's and are changed here; settings of brokers are judged here, by the broker that has
the parts that they would change, and refused or left to the controller.  Only what was not settled here goes on, under
the client's own header; the answers are put together in the order of the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.requests import ConfigAlteration, ConfigEdit, EditOperation
from kbroker.cluster.resource_configs import ResourceConfigs
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError, bare
from kbroker.handlers.cluster.forwarded_errors import altered, config_row
from kbroker.handlers.cluster.on_behalf import ask_for_client
from kbroker.handlers.topics.alter_configs import (
    alter_loggers,
    check_once,
    check_values,
    operation_of,
    own_broker,
    repeated_resources,
    telling,
)
from kbroker.metadata.image import ConfigResource
from kbroker.schemas import request_message, wire

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.cluster.forwarded_errors import ConfigRequest as Request
    from kbroker.handlers.cluster.forwarded_errors import ConfigResource as Resource
    from kbroker.handlers.cluster.forwarded_errors import ConfigRow
    from kbroker.handlers.services import RequestContext, Services
    from kbroker.metadata.broker_settings import BrokerSettings

_FORWARDED = frozenset({ConfigResourceType.TOPIC, ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP})
_DONE = None


async def preprocess(ctx: RequestContext, request: Request) -> dict[int, KafkaError | None]:
    """What is settled here, by position in the request: an error, or None for what was changed."""
    pace = ctx.services.slices.pace()
    repeated = await repeated_resources(request.resources, pace)
    settled: dict[int, KafkaError | None] = {}
    for index, resource in enumerate(_resources(request)):
        await pace
        try:
            check_once(resource, repeated)
            if await _is_done(ctx, request, resource, pace):
                settled[index] = _DONE
        except KafkaError as error:
            settled[index] = bare(error)
    return settled


async def _is_done(ctx: RequestContext, request: Request, resource: Resource, pace: Pace) -> bool:
    """Whether nothing of a resource is left for the controller.  KafkaError where it is refused."""
    settings = await _settings(resource, pace)
    kind, is_incremental = resource.resource_type, isinstance(request, wire.IncrementalAlterConfigsRequest)
    if kind in _FORWARDED:
        return False
    edits = []
    for name, operation, value in settings:
        await pace
        edits.append(ConfigEdit(name, operation_of(kind, operation), value or ""))
    if kind == ConfigResourceType.BROKER:
        name = own_broker(ctx.services, resource.resource_name) if resource.resource_name else ""
        _check_broker(ctx.services, ConfigAlteration(ConfigResource(kind, name), edits, replace=not is_incremental))
        return False
    if kind == ConfigResourceType.BROKER_LOGGER and is_incremental:
        alter_loggers(ctx, resource.resource_name, edits, request.validate_only)
        return True
    raise InvalidRequestError(f"Unknown resource type {kind}")


async def _settings(resource: Resource, pace: Pace) -> list[tuple[str, int, str | None]]:
    """Name, operation and value of each setting.  InvalidRequestError for names given twice and values that lack."""
    if isinstance(resource, wire.AlterConfigsRequest.AlterConfigsResource):
        plain = await telling(resource.resource_type, resource.configs, pace)
        check_values(plain, plain)
        return [(each.name, EditOperation.SET, each.value) for each in plain]
    configs = await telling(resource.resource_type, resource.configs, pace)
    check_values(configs, [each for each in configs if each.config_operation != EditOperation.DELETE])
    return [(each.name, each.config_operation, each.value) for each in configs]


def _check_broker(services: Services, alteration: ConfigAlteration) -> None:
    """InvalidRequestError or InvalidConfigError where this broker cannot be given the settings."""
    own = services.metadata_cache.image.configs.get(alteration.resource, {})
    # What a broker has there; the protocol is for handlers that only read.
    ResourceConfigs(cast("BrokerSettings", services.settings)).of(own, alteration)


async def forward_rest(
    ctx: RequestContext, request: Request, settled: Mapping[int, KafkaError | None]
) -> Struct | None:
    """The answer, in which the controller's for what was not settled here.  None: the connection was closed."""
    resources = _resources(request)
    left = [each for index, each in enumerate(resources) if index not in settled]
    rows: Sequence[ConfigRow] = ()
    throttle_ms = 0
    if left:
        try:
            answer = await _ask(ctx, request, left)
            rows, throttle_ms = answer.responses, answer.throttle_time_ms
        except KafkaError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                ctx.connection.close("the controller does not know the version")
                return None
            rows = [config_row(request, each, error) for each in left]
    known = {(row.resource_type, row.resource_name): row for row in rows}
    missing = KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
    merged = []
    for index, resource in enumerate(resources):
        found = None if index in settled else known.get((resource.resource_type, resource.resource_name))
        merged.append(found or config_row(request, resource, settled.get(index, missing)))
    return altered(request, merged, throttle_ms)


async def _ask(
    ctx: RequestContext, request: Request, left: Sequence[Resource]
) -> wire.AlterConfigsResponse | wire.IncrementalAlterConfigsResponse:
    assert request.api_key is not None
    rest: Request = request_message(request.api_key)(resources=list(left), validate_only=request.validate_only)
    answer = await ask_for_client(ctx, rest, ctx.api_version)
    assert isinstance(answer, wire.AlterConfigsResponse | wire.IncrementalAlterConfigsResponse)
    return answer


def _resources(request: Request) -> Sequence[Resource]:
    return request.resources
