"""The state of share-partitions whose coordinator is another broker."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kbroker.cluster.node_clients import NodeClients
from kbroker.coordinator.share.share_coordinator import ShareCoordinator
from kbroker.coordinator.share.share_states import ShareStates
from kbroker.errors import CoordinatorNotAvailableError, KafkaError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
from kbroker.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kbroker.replication.share.persister import SharePartitionKey, StateUpdate, StoredState
from kbroker.schemas import wire

OURS, THEIRS = 1, 2
KEY = SharePartitionKey("g", b"t" * 16, 0)
TOPIC = TopicImage(SHARE_GROUP_STATE_TOPIC, b"s" * 16, (PartitionImage(0, THEIRS, 0, (THEIRS,), (THEIRS,)),))


class Other:
    """The clients of another broker, and the one there is; `answer` is what it says, or what sending raises."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def of(self, node_id: int) -> Other:
        assert node_id == THEIRS
        return self

    async def connect(self) -> None:
        """It is there."""

    def version_of(self, _api_key: int, at_most: int) -> int:
        return at_most

    async def send(self, _request: object, _version: int) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    async def ask(self, kind: type[Any], request: object, at_most: int) -> Any:
        answer = await self.send(request, at_most)
        assert isinstance(answer, kind)
        return answer


@pytest.mark.parametrize(
    "answer",
    [ValueError("a request of 200 bytes, 100 are allowed"), wire.ReadShareGroupStateResponse(), wire.FetchResponse()],
    ids=["too large", "without rows", "another one"],
)
def test_what_another_coordinator_cannot_be_asked_or_does_not_say_is_an_error(answer: object) -> None:
    """A share-partition waits for the state before it hands records out, and would wait for good."""

    async def run() -> tuple[list[object], list[object]]:
        cache = MetadataCache(ClusterImage.of("c", topics=[TOPIC]))
        elsewhere = cast("NodeClients", Other(answer))
        states = ShareStates(cast("ShareCoordinator", None), cache, OURS, elsewhere)
        loaded: list[StoredState | KafkaError] = []
        stored: list[KafkaError | None] = []
        states.read_state(KEY, 1, loaded.append)
        states.write_state(KEY, StateUpdate(1, 1, 0, 0, ()), stored.append)
        await asyncio.gather(*states._asking, return_exceptions=True)
        return list(loaded), list(stored)

    for said in asyncio.run(run()):
        assert [type(each) for each in said] == [CoordinatorNotAvailableError]
