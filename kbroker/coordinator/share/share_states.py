"""The state of share-partitions for the groups and leaders of this broker: at the share coordinator here, or at another
broker's, asked over the wire (APIs 83 to 87 of KIP-932), as the leader of the state's partition is.

Versions are negotiated.  A coordinator elsewhere that is not there yet, is not the one any more, or cannot be reached
is asked again, ATTEMPTS times in all with growing pauses, wherever it is by then, as Kafka's persister does: a group
would lose what its consumers acknowledged while a coordinator moves.  Only the coordinator here is asked once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kbroker.backoff import ExponentialBackoff
from kbroker.cluster.client import NodeError
from kbroker.coordinator.runtime.coordinator_lookup import coordinator_node
from kbroker.coordinator.share.share_coordinator import ShareCoordinator, coordinator_key
from kbroker.errors import CoordinatorNotAvailableError, ErrorCode, KafkaError, again, bare
from kbroker.metadata.image import NO_LEADER
from kbroker.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kbroker.protocol.api import ApiKey
from kbroker.replication.share.persister import SharePartitionKey, StateBatch, StateUpdate, StoredState
from kbroker.schemas import schema, wire

if TYPE_CHECKING:
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.coordinator.share.state_records import ShareState
    from kbroker.metadata.cache import MetadataCache
    from kbroker.protocol.messages import Message
    from kbroker.replication.share.persister import Loaded, Stored

logger = logging.getLogger("kbroker.coordinator")

INITIALIZE_VERSION = READ_VERSION = DELETE_VERSION = 0
WRITE_VERSION = 1
SUMMARY_VERSION = 1
COUNTS_FROM = schema("WriteShareGroupStateRequest").first_version("topics.partitions.delivery_complete_count")

ATTEMPTS = 5
BACKOFF = ExponentialBackoff(1.0, 30.0)
"""In seconds."""
_PASSING = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class _Row(Protocol):
    error_code: int
    error_message: str | None


class Summary(NamedTuple):
    """A state without its batches."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


Row = TypeVar("Row", bound=_Row)
_Value = TypeVar("_Value")
_Answer = TypeVar("_Answer")


class ShareStates:
    """See the module, and `Persister`.  `elsewhere`: clients of other brokers; None where there are none."""

    def __init__(
        self, coordinator: ShareCoordinator, cache: MetadataCache, node_id: int, elsewhere: NodeClients | None
    ) -> None:
        self._coordinator = coordinator
        self._cache = cache
        self._node_id = node_id
        self._elsewhere = elsewhere
        self._asking: set[asyncio.Task[None]] = set()

    def _other(self, key: SharePartitionKey) -> int | None:
        """The broker to ask; None where it is this one, or will say itself that it is not."""
        if self._elsewhere is None:
            return None
        node_id = coordinator_node(self._cache.image, SHARE_GROUP_STATE_TOPIC, coordinator_key(key))
        return None if node_id in (self._node_id, NO_LEADER) else node_id

    async def _wherever(
        self,
        key: SharePartitionKey,
        here: Callable[[], Awaitable[_Value]],
        there: Callable[[int], Awaitable[_Value]],
        other: int | None,
    ) -> _Value:
        """What the coordinator says, `other` at first (None: this broker), and the coordinator of the moment later."""
        was_elsewhere = other is not None
        for attempt in range(ATTEMPTS):
            try:
                return await (here() if other is None else there(other))
            except KafkaError as error:
                if not was_elsewhere or error.code not in _PASSING or attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(BACKOFF.backoff(attempt, random.uniform))
            other = self._other(key)
        raise AssertionError("unreachable")

    # Of groups

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """See `ShareCoordinator.initialize`; committed when this returns."""

        async def there(other: int) -> None:
            request = wire.InitializeShareGroupStateRequest
            row = request.PartitionData(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
            topic = request.InitializeStateData(topic_id=key.topic_id, partitions=[row])
            asked = request(group_id=key.group_id, topics=[topic])
            answer = await self._ask(other, asked, INITIALIZE_VERSION, wire.InitializeShareGroupStateResponse)
            checked(answer.results[0].partitions[0])

        def here() -> Awaitable[None]:
            return self._coordinator.committed(self._coordinator.initialize(key, state_epoch, start_offset))

        await self._wherever(key, here, there, self._other(key))

    async def delete(self, key: SharePartitionKey) -> None:
        """See `ShareCoordinator.delete`; committed when this returns."""

        async def there(other: int) -> None:
            request = wire.DeleteShareGroupStateRequest
            row = request.PartitionData(partition=key.partition)
            topic = request.DeleteStateData(topic_id=key.topic_id, partitions=[row])
            asked = request(group_id=key.group_id, topics=[topic])
            answer = await self._ask(other, asked, DELETE_VERSION, wire.DeleteShareGroupStateResponse)
            checked(answer.results[0].partitions[0])

        def here() -> Awaitable[None]:
            return self._coordinator.committed(self._coordinator.delete(key))

        await self._wherever(key, here, there, self._other(key))

    async def summary(self, key: SharePartitionKey) -> Summary | None:
        """The state as it is; None where there is none."""

        async def there(other: int) -> Summary | None:
            request = wire.ReadShareGroupStateSummaryRequest
            row = request.PartitionData(partition=key.partition, leader_epoch=-1)
            topic = request.ReadStateSummaryData(topic_id=key.topic_id, partitions=[row])
            asked = request(group_id=key.group_id, topics=[topic])
            answer = await self._ask(other, asked, SUMMARY_VERSION, wire.ReadShareGroupStateSummaryResponse)
            found = checked(answer.results[0].partitions[0])
            return _summary(found) if found.state_epoch or found.start_offset >= 0 else None

        async def here() -> Summary | None:
            state = await self._coordinator.committed(self._coordinator.summary(key))
            return None if state is None else _summary(state)

        return await self._wherever(key, here, there, self._other(key))

    # Of leaders

    def read_state(self, key: SharePartitionKey, leader_epoch: int, loaded: Loaded) -> None:
        """See `Persister`."""
        other = self._other(key)
        if other is None:
            self._coordinator.read_state(key, leader_epoch, loaded)
            return

        async def here() -> StoredState:
            return await _called(lambda done: self._coordinator.read_state(key, leader_epoch, done))

        self._later(self._wherever(key, here, lambda node: self._read(node, key, leader_epoch), other), loaded, loaded)

    def write_state(self, key: SharePartitionKey, update: StateUpdate, stored: Stored) -> None:
        """See `Persister`."""
        other = self._other(key)
        if other is None:
            self._coordinator.write_state(key, update, stored)
            return

        async def here() -> None:
            return await _called(lambda done: self._coordinator.write_state(key, update, done))

        self._later(self._wherever(key, here, lambda node: self._write(node, key, update), other), stored, stored)

    async def _read(self, other: int, key: SharePartitionKey, leader_epoch: int) -> StoredState:
        request = wire.ReadShareGroupStateRequest
        row = request.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = request.ReadStateData(topic_id=key.topic_id, partitions=[row])
        asked = request(group_id=key.group_id, topics=[topic])
        answer = await self._ask(other, asked, READ_VERSION, wire.ReadShareGroupStateResponse)
        found = checked(answer.results[0].partitions[0])
        batches = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in found.state_batches
        )
        return StoredState(found.state_epoch, found.start_offset, batches)

    async def _write(self, other: int, key: SharePartitionKey, update: StateUpdate) -> None:
        request = wire.WriteShareGroupStateRequest
        row = request.PartitionData(
            partition=key.partition,
            state_epoch=update.state_epoch,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            state_batches=[request.StateBatch(**each._asdict()) for each in update.batches],
        )
        version = await self._version(other, ApiKey.WRITE_SHARE_GROUP_STATE, WRITE_VERSION)
        if version >= COUNTS_FROM:
            row.delivery_complete_count = update.delivery_complete_count
        topic = request.WriteStateData(topic_id=key.topic_id, partitions=[row])
        asked = request(group_id=key.group_id, topics=[topic])
        answer = await self._ask(other, asked, version, wire.WriteShareGroupStateResponse)
        checked(answer.results[0].partitions[0])

    def _later(
        self, work: Awaitable[_Value], done: Callable[[_Value], object], failed: Callable[[KafkaError], object]
    ) -> None:
        async def run() -> None:
            try:
                value = await work
            except KafkaError as error:
                failed(bare(error))
            except Exception as error:
                # A defect, or an answer that makes no sense: the share-partition must not wait for it for good.
                logger.exception("a share coordinator was asked in vain")
                failed(CoordinatorNotAvailableError(str(error)))
            else:
                done(value)

        task = asyncio.get_running_loop().create_task(run())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _version(self, node_id: int, api_key: int, at_most: int) -> int:
        """The highest common version.  CoordinatorNotAvailableError where the broker cannot be reached, or has none."""
        assert self._elsewhere is not None
        client = self._elsewhere.of(node_id)
        try:
            await client.connect()
            return client.version_of(api_key, at_most)
        except NodeError as error:
            raise CoordinatorNotAvailableError(str(error)) from error

    async def _ask(self, node_id: int, request: Message, at_most: int, kind: type[_Answer]) -> _Answer:
        """The answer.  CoordinatorNotAvailableError where there is none."""
        assert self._elsewhere is not None
        try:
            return await self._elsewhere.of(node_id).ask(kind, request, at_most)
        except NodeError as error:
            raise CoordinatorNotAvailableError(str(error)) from error


async def _called(ask: Callable[[Callable[[_Value | KafkaError], None]], None]) -> _Value:
    """What a call gives to its callback, raised where it is an error."""
    answer: asyncio.Future[_Value | KafkaError] = asyncio.get_running_loop().create_future()
    ask(answer.set_result)
    found = await answer
    if isinstance(found, KafkaError):
        raise again(found)
    return found


def _summary(state: ShareState | wire.ReadShareGroupStateSummaryResponse.PartitionResult) -> Summary:
    return Summary(state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count)


def checked(row: Row) -> Row:
    """The row of an answer.  Raises what it says."""
    if row.error_code:
        raise KafkaError.of(ErrorCode(row.error_code), row.error_message)
    return row
