"""Topics: made, deleted, given more partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kbroker.administration.admin import new_or_old
from kbroker.errors import refuse
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.administration.admin import Admin

BY_DEFAULT = -1
"""Partitions or replicas: as many as the broker's settings say."""


class NewTopic(NamedTuple):
    """A topic that is to be made."""

    name: str
    partitions: int = BY_DEFAULT
    replicas: int = BY_DEFAULT
    settings: Mapping[str, str] = {}


def creation(topics: Sequence[NewTopic], timeout_ms: int, *, validate_only: bool = False) -> wire.CreateTopicsRequest:
    """The request that makes topics."""
    request = wire.CreateTopicsRequest
    rows = [
        request.CreatableTopic(
            name=each.name,
            num_partitions=each.partitions,
            replication_factor=each.replicas,
            configs=[request.CreatableTopicConfig(name=key, value=value) for key, value in each.settings.items()],
        )
        for each in topics
    ]
    return request(topics=rows, timeout_ms=timeout_ms, validate_only=validate_only)


async def create_topics(
    admin: Admin, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> list[wire.CreateTopicsResponse.CreatableTopicResult]:
    """Make topics, or have the controller check them; a row for each, with its error."""
    request = creation(topics, admin.timeout_ms, validate_only=validate_only)
    return (await admin.ask_controller(wire.CreateTopicsResponse, request)).topics


async def delete_topics(admin: Admin, names: Sequence[str]) -> list[wire.DeleteTopicsResponse.DeletableTopicResult]:
    """Delete topics by their names; a row for each, with its error."""
    request = wire.DeleteTopicsRequest
    new = request(topics=[request.DeleteTopicState(name=name) for name in names], timeout_ms=admin.timeout_ms)
    old = request(topic_names=[*names], timeout_ms=admin.timeout_ms)
    return (await new_or_old(partial(admin.ask_controller, wire.DeleteTopicsResponse), new, old)).responses


async def add_partitions(admin: Admin, name: str, count: int, *, validate_only: bool = False) -> None:
    """Have a topic get more partitions, `count` with those that it has."""
    request = wire.CreatePartitionsRequest
    topic = request.CreatePartitionsTopic(name=name, count=count, assignments=None)
    answer = await admin.ask_controller(
        wire.CreatePartitionsResponse,
        request(topics=[topic], timeout_ms=admin.timeout_ms, validate_only=validate_only),
    )
    for row in answer.results:
        refuse(row.error_code, row.error_message)
