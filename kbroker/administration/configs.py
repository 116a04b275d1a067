"""Settings of topics, brokers and groups: as they are, and changed at run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from kbroker.errors import refuse
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.administration.admin import Admin

ALL_BROKERS = ""
"""The name of the resource whose settings all brokers share."""
SET, DELETE = 0, 1


class Kind(IntEnum):
    """As Kafka numbers the resources of settings (`ConfigResource.Type`)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from (`ConfigSource`)."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    AT_START = 4
    DEFAULT = 5
    GROUP = 8


async def alter_configs(
    admin: Admin,
    kind: Kind,
    name: str,
    given: Mapping[str, str],
    unset: Iterable[str],
    *,
    node_id: int | None = None,
    validate_only: bool = False,
) -> None:
    """Set settings of a resource, and take others away.  `node_id`: the broker whose own settings they are."""
    request = wire.IncrementalAlterConfigsRequest
    changes = [request.AlterableConfig(name=key, config_operation=SET, value=value) for key, value in given.items()]
    changes += [request.AlterableConfig(name=key, config_operation=DELETE, value=None) for key in unset]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    answer = await admin.ask(
        wire.IncrementalAlterConfigsResponse, request(resources=[resource], validate_only=validate_only), node_id
    )
    for row in answer.responses:
        refuse(row.error_code, row.error_message)


async def describe_configs(
    admin: Admin,
    kind: Kind,
    names: Sequence[str],
    keys: Iterable[str] = (),
    *,
    node_id: int | None = None,
    documentation: bool = False,
) -> dict[str, list[wire.DescribeConfigsResponse.DescribeConfigsResourceResult]]:
    """The settings of resources of one kind by their names, sorted; all of them unless some are named by `keys`."""
    request = wire.DescribeConfigsRequest
    resources = [
        request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[*keys] or None)
        for name in names
    ]
    answer = await admin.ask(
        wire.DescribeConfigsResponse, request(resources=resources, include_documentation=documentation), node_id
    )
    for row in answer.results:
        refuse(row.error_code, row.error_message)
    return {row.resource_name: sorted(row.configs, key=lambda each: each.name) for row in answer.results}
