"""Internal topics of streams groups in a KRaft cluster: `kbroker.cluster.kraft.kraft_controller`."""

from __future__ import annotations

import asyncio
from typing import Any

from kbroker.cluster.kraft.kraft_controller import KRaftController
from kbroker.cluster.requests import NewTopic
from kbroker.errors import ErrorCode
from kbroker.schemas import wire


class Channel:
    """Makes all topics but one, as a controller would."""

    def __init__(self) -> None:
        self.asked: list[wire.CreateTopicsRequest] = []

    async def create_topics(self, request: wire.CreateTopicsRequest) -> wire.CreateTopicsResponse:
        self.asked.append(request)
        row = wire.CreateTopicsResponse.CreatableTopicResult
        refused = {"error_code": ErrorCode.INVALID_REPLICATION_FACTOR, "error_message": "too many"}
        rows = [row(name=each.name, **(refused if each.replication_factor == 9 else {})) for each in request.topics]
        return wire.CreateTopicsResponse(topics=rows)


def test_internal_topics_of_streams_groups_are_made_by_the_controllers() -> None:
    """An application of Kafka Streams would wait for its changelogs for ever: the broker refused to make them."""
    unused: Any = None
    channel: Any = Channel()
    controller = KRaftController(channel, unused, unused, unused, lambda: None)
    wanted = [NewTopic("changelog", 3, 2, configs={"cleanup.policy": "compact"}), NewTopic("too-many", 1, 9)]
    made, refused = asyncio.run(controller.create_group_topics(wanted))
    assert (made.name, made.error) == ("changelog", None)
    assert refused.error is not None
    assert (refused.error.code, refused.error.message) == (ErrorCode.INVALID_REPLICATION_FACTOR, "too many")
    ((changelog, _),) = [request.topics for request in channel.asked]
    assert (changelog.num_partitions, changelog.replication_factor) == (3, 2)
    assert [(each.name, each.value) for each in changelog.configs] == [("cleanup.policy", "compact")]
