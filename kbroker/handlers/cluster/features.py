"""UpdateFeatures (API 57): v0-v2.

Changes the levels of features (`kbroker.metadata.features`), all that the request names or none; ApiVersions shows
them from the next request on.

- v0 has only a flag that allows a downgrade, and the controller treats every v0 update as an upgrade, as Kafka's does.
  v1+ have the type of change, and `validate_only`.
- An error concerns the whole request.  v0-v1 have a result per feature as well; on an error there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import KafkaError
from kbroker.gate.access import require_cluster
from kbroker.handlers.table import Handler
from kbroker.metadata.features import FeatureUpdate
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

RESULTS_UNTIL = schema("UpdateFeaturesResponse").last_version("results")


async def handle_update_features(ctx: RequestContext, request: wire.UpdateFeaturesRequest) -> Struct:
    """UpdateFeatures v0-v2; see the module's docstring."""
    response = wire.UpdateFeaturesResponse
    try:
        require_cluster(ctx, Operation.ALTER)
    except KafkaError as error:
        return response(error_code=error.code, error_message=error.message)
    pace = ctx.services.slices.pace()
    updates = []
    for row in request.feature_updates:
        await pace
        updates.append(FeatureUpdate(row.feature, row.max_version_level, row.upgrade_type))
    try:
        await ctx.services.administration.update_features(updates, request.validate_only)
    except KafkaError as error:
        text = f"The update failed for all features since the following feature had an error: {error}"
        return response(error_code=error.code, error_message=text)
    answer = response(error_message=None)
    if ctx.api_version <= RESULTS_UNTIL:
        for update in updates:
            await pace
            answer.results.append(response.UpdatableFeatureResult(feature=update.name, error_message="NONE"))
    return answer


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.UPDATE_FEATURES, 0, 2, handle_update_features),)
