"""ListConfigResources (API 74): v0-v1, in Kafka 3.9 ListClientMetricsResources.

The names of resources with settings: groups and client metrics that have some set, and every topic and broker.

- v0 lists client metrics.  v1+: resources of the requested types; of all types but topics if none is requested.  A kind
  that cannot be listed is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.errors import ErrorCode
from kbroker.gate.access import may_cluster
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.image import ClusterImage

KINDS_FROM = schema("ListConfigResourcesRequest").first_version("resource_types")


async def handle_list_config_resources(ctx: RequestContext, request: wire.ListConfigResourcesRequest) -> Struct:
    """ListConfigResources v0-v1; see the module's docstring."""
    response = wire.ListConfigResourcesResponse
    if not may_cluster(ctx, Operation.DESCRIBE_CONFIGS):
        return response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kinds = frozenset(request.resource_types) or frozenset(ConfigResourceType)
    if ctx.api_version < KINDS_FROM:
        kinds = frozenset({ConfigResourceType.CLIENT_METRICS})
    if not kinds <= set(ConfigResourceType):
        return response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    pace = ctx.services.slices.pace()
    image = ctx.services.metadata_cache.image
    resources = []
    for kind in sorted(kinds):
        for name in _names(image, kind):
            await pace
            resources.append(response.ConfigResource(resource_name=name, resource_type=kind))
    return response(config_resources=resources)


def _names(image: ClusterImage, kind: int) -> Iterable[str]:
    match kind:
        case ConfigResourceType.TOPIC:
            return image.topics
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(node_id) for node_id in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs if resource.kind == kind)


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, handle_list_config_resources),)
