"""Where an answer's frame has its throttle time."""

from __future__ import annotations

from functools import cache

from kbroker.protocol.api import ApiKey, response_header_version
from kbroker.protocol.schema import fields_of
from kbroker.schemas import response_schema

THROTTLE_TIME = "throttle_time_ms"
THROTTLE_TIME_BYTES = 4
# A frame's length and its correlation id.
FRAME_HEADER_BYTES = 8


@cache
def throttle_at(api_key: ApiKey, version: int) -> int:
    """From the frame's begin or, negative, from its end; 0 where it has none.  The frame has no tagged fields."""
    fields = fields_of(response_schema(api_key), version)
    if fields and fields[0].name == THROTTLE_TIME:
        return FRAME_HEADER_BYTES + response_header_version(api_key, version)
    if fields and fields[-1].name == THROTTLE_TIME:
        return -(THROTTLE_TIME_BYTES + response_schema(api_key).is_flexible(version))
    return 0
