"""ApiVersions: v0-v4.

A client's first question: which APIs, in which versions.  The lines come from the broker's table of handlers.

- A version that is not served is answered in v0 form with UNSUPPORTED_VERSION and the range of ApiVersions itself, as
  in Kafka (KIP-511), so that a newer client can step down.  `unsupported_version_response` makes it.
- v1+: throttle time.  v3+: client software name and version, checked against Kafka's pattern (INVALID_REQUEST);
  supported and finalized features.
- Features: `metadata.version` is announced at the level of the Kafka release whose protocol is served, because tools
  derive the broker's version from it.  `group.version`, `transaction.version` and the others are left out until they
  are served: clients change their protocol by them.
- v0-v3 leave out features whose lowest level is 0 (KAFKA-17492); none of ours has that.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext, Services
    from kbroker.protocol.api import ApiRange

MIN_VERSION = 0
MAX_VERSION = 4

METADATA_VERSION_FEATURE = "metadata.version"
METADATA_VERSION_MIN = 7
METADATA_VERSION = 30
FEATURES_EPOCH = 1

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(ctx: RequestContext, request: wire.ApiVersionsRequest) -> Struct:
    """ApiVersions v0-v4: the table of served APIs; see the module's docstring."""
    if ctx.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return wire.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    ctx.lasting = True
    return _answer(ctx.services.advertised_apis)


def unsupported_version_response(_services: Services) -> Struct:
    """The answer, to be encoded as v0, to an ApiVersions request of a version that is not served."""
    response = wire.ApiVersionsResponse
    return response(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[response.ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=MIN_VERSION, max_version=MAX_VERSION)],
    )


@cache
def _answer(ranges: tuple[ApiRange, ...]) -> Struct:
    response = wire.ApiVersionsResponse
    return response(
        api_keys=[
            response.ApiVersion(api_key=line.api_key, min_version=line.min_version, max_version=line.max_version)
            for line in ranges
        ],
        supported_features=[
            response.SupportedFeatureKey(
                name=METADATA_VERSION_FEATURE, min_version=METADATA_VERSION_MIN, max_version=METADATA_VERSION
            )
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            response.FinalizedFeatureKey(
                name=METADATA_VERSION_FEATURE, min_version_level=METADATA_VERSION, max_version_level=METADATA_VERSION
            )
        ],
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.API_VERSIONS, MIN_VERSION, MAX_VERSION, handle_api_versions, lasting=True),
)
