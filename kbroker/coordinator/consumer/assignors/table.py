"""The server's assignors by the names that `group.consumer.assignors` and members use."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.coordinator.consumer.assignors import range_assignor, uniform
from kbroker.coordinator.consumer.assignors.group_spec import Assign

ASSIGNORS: Mapping[str, Assign] = {
    uniform.NAME: uniform.assign_uniform,
    range_assignor.NAME: range_assignor.assign_range,
}
