"""Groups over Kafka's protocol: which there are, of which kinds, and which name may have been meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.nearest import did_you_mean

if TYPE_CHECKING:
    from kbroker.client.admin import ClusterAdmin
    from kbroker.schemas import wire


def groups_of(admin: ClusterAdmin, node_id: int, *kinds: str) -> list[wire.ListGroupsResponse.ListedGroup]:
    """The groups that a broker coordinates, of these kinds alone where there are some.  KafkaError."""
    from kbroker.administration.admin import refuse
    from kbroker.schemas import wire

    answer = admin.send(wire.ListGroupsResponse, wire.ListGroupsRequest(types_filter=[*kinds]), node_id)
    refuse(answer.error_code)
    return answer.groups


def every_group(admin: ClusterAdmin, *kinds: str) -> Iterator[tuple[str, str]]:
    """Groups, each with its kind in small letters; empty where a broker knows of no kinds."""
    for node_id in admin.cluster.nodes():
        yield from ((row.group_id, row.group_type.lower()) for row in groups_of(admin, node_id, *kinds))


def near_group(admin: ClusterAdmin, group_id: str, *kinds: str) -> str:
    """`; did you mean X?` for a group of these kinds that there is not."""
    return did_you_mean(group_id, [name for name, _ in every_group(admin, *kinds) if name != group_id])
