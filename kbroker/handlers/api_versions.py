"""ApiVersions: v0-v4.

A client's first question: which APIs, in which versions.  The lines come from the table of handlers of its listener.

- A version that is not served is answered in v0 form with UNSUPPORTED_VERSION and the range of ApiVersions itself, as
  in Kafka (KIP-511), so that a newer client can step down.  `unsupported_version_response` makes it.
- v1+: throttle time.  v3+: client software name and version, checked against Kafka's pattern (INVALID_REQUEST);
  supported and finalized features.
- Features: those of `kbroker.metadata.features` with the levels in force and their epoch.  Its `metadata.version` is
  the level of the Kafka release whose protocol is served: tools derive the broker's version from it.
- In a KRaft cluster, of the APIs that go on to the controller: the versions that both have, once it is known.
- The APIs of client metrics are shown while there is a subscription.  Without one, librdkafka writes a line about them
  at each start, and Kafka has them only with a plugin.  A client that is connected when the first one is made asks for
  versions with its next connection.
- v3 omits features whose lowest level is 0 from the supported features (KAFKA-17492), but not from the finalized ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.client_software import SOFTWARE_FROM
from kbroker.handlers.security.authentication import versions_asked
from kbroker.handlers.table import Handler
from kbroker.metadata.client_metrics_overrides import CLIENT_METRICS_RESOURCE
from kbroker.metadata.features import NO_LEVEL, served_features
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.net.pending import Pending
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext, Services
    from kbroker.metadata.features import Features
    from kbroker.protocol.api import ApiRange

MIN_VERSION = 0
MAX_VERSION = 4

LOWEST_LEVEL_0_FROM = 4
_TELEMETRY = frozenset((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY))

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(ctx: RequestContext, request: wire.ApiVersionsRequest) -> Struct | Pending:
    """ApiVersions v0-v4: the table of served APIs; see the module's docstring."""
    if ctx.api_version >= SOFTWARE_FROM and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return wire.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    unexpected = versions_asked(ctx)
    if unexpected is not None:
        return unexpected
    services = ctx.services
    image = services.metadata_cache.image
    ranges = services.advertised_apis.get(ctx.connection.listener_name, ())
    if not any(resource.kind == CLIENT_METRICS_RESOURCE for resource in image.configs):
        ranges = tuple(each for each in ranges if each.api_key not in _TELEMETRY)
    # What is answered from memory moves no session on.
    ctx.cacheable = services.view.has_fixed_versions and ctx.connection.session.is_authenticated
    return _answer(services.view.advertised(ranges), image.features, ctx.api_version >= LOWEST_LEVEL_0_FROM)


def unsupported_version_response(_services: Services) -> Struct:
    """The answer, to be encoded as v0, to an ApiVersions request of a version that is not served."""
    response = wire.ApiVersionsResponse
    return response(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[response.ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=MIN_VERSION, max_version=MAX_VERSION)],
    )


def _answer(ranges: tuple[ApiRange, ...], features: Features, with_level_0: bool) -> Struct:
    response = wire.ApiVersionsResponse
    return response(
        api_keys=[
            response.ApiVersion(api_key=line.api_key, min_version=line.min_version, max_version=line.max_version)
            for line in ranges
        ],
        supported_features=[
            response.SupportedFeatureKey(name=row.name, min_version=row.min_level, max_version=row.max_level)
            for row in served_features(features.table).values()
            if with_level_0 or row.min_level > NO_LEVEL
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            response.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in features.levels().items()
        ],
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.API_VERSIONS, MIN_VERSION, MAX_VERSION, handle_api_versions, cacheable=True),
)
