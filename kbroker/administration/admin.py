"""An administrator's client of a cluster: it finds the broker for each request, and repeats what fails for a while."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.protocol.messages import Message

A = TypeVar("A")
Place = tuple[str, int]
"""A topic and the number of a partition."""

PATIENCE_SECONDS, PAUSE_SECONDS = 10.0, 0.1
_PASSING = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
GROUP, TRANSACTION = 0, 1


class Admin(ABC):
    """All that asks raises KafkaError.  `timeout_ms`: how long a broker may take for a change."""

    timeout_ms = 30_000

    @abstractmethod
    async def ask(self, kind: type[A], request: Message, node_id: int | None = None) -> A:
        """The answer of a broker, of its `kind`; of any one unless it is said."""

    @abstractmethod
    async def ask_controller(self, kind: type[A], request: Message) -> A:
        """The answer to what the controller alone serves."""

    @abstractmethod
    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads a partition."""

    @abstractmethod
    def topic_id_of(self, name: str) -> bytes:
        """A topic's id; all zero where topics have none."""

    @abstractmethod
    def name_of(self, topic_id: bytes) -> str | None:
        """The topic of an id."""

    @abstractmethod
    def now(self) -> float:
        """Seconds of a clock that only goes on."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Let time pass."""

    async def patiently(self, step: Callable[[], Awaitable[A]]) -> A:
        """What a step gives, repeated while leaders and coordinators change, as a client does: nothing was done
        then."""
        until = self.now() + PATIENCE_SECONDS
        while True:
            try:
                return await step()
            except KafkaError as error:
                if error.code not in _PASSING or self.now() > until:
                    raise
            await self.pause(PAUSE_SECONDS)

    async def coordinator_of(self, key: str, of: int = GROUP) -> int:
        """The broker that coordinates a group or a transactional id."""
        new = wire.FindCoordinatorRequest(key_type=of, coordinator_keys=[key])
        old = wire.FindCoordinatorRequest(key_type=of, key=key)

        async def find() -> int:
            answer = await new_or_old(partial(self.ask, wire.FindCoordinatorResponse), new, old)
            row = answer.coordinators[0] if answer.coordinators else answer
            refuse(row.error_code, row.error_message)
            return row.node_id

        return await self.patiently(find)

    async def ask_coordinator(self, kind: type[A], request: Message, key: str, of: int = GROUP) -> A:
        """The answer of the broker that coordinates a group or a transactional id."""
        return await self.ask(kind, request, await self.coordinator_of(key, of))

    async def offsets(self, topic: str, partitions: Sequence[int], at: int, isolation: int = 0) -> dict[int, int]:
        """First offsets at or after a time, LATEST or EARLIEST, of each partition, -1 where there is none."""
        found = await self.offsets_of([(topic, each) for each in partitions], at, isolation)
        return {index: offset for (_, index), offset in found.items()}

    async def offsets_of(
        self, places: Iterable[Place], at: int, isolation: int = 0, *, skips: bool = False
    ) -> dict[Place, int]:
        """The same of partitions of several topics.  `skips`: leave out those that are not there, or not shown."""
        return await self.patiently(partial(self._offsets, [*places], at, isolation, skips))

    async def _offsets(self, places: Sequence[Place], at: int, isolation: int, skips: bool) -> dict[Place, int]:
        request = wire.ListOffsetsRequest
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic, partition in places:
            try:
                leader = self.leader_of(topic, partition)
            except KafkaError:
                if not skips:
                    raise
            else:
                by_leader.setdefault(leader, {}).setdefault(topic, []).append(partition)
        found: dict[Place, int] = {}
        for leader, led in by_leader.items():
            topics = [
                request.ListOffsetsTopic(
                    name=name, partitions=[request.ListOffsetsPartition(partition_index=i, timestamp=at) for i in each]
                )
                for name, each in led.items()
            ]
            answer = await self.ask(
                wire.ListOffsetsResponse, request(replica_id=-1, isolation_level=isolation, topics=topics), leader
            )
            for topic_row in answer.topics:
                for row in topic_row.partitions:
                    place = (topic_row.name, row.partition_index)
                    if not row.error_code:
                        found[place] = row.offset
                    elif not skips or row.error_code in _PASSING:
                        refuse(row.error_code, f"{place[0]}-{place[1]}: {error_name(row.error_code)}")
        return found


async def new_or_old(ask: Callable[[Message], Awaitable[A]], new: Message, old: Message) -> A:
    """The answer to one question in two forms; `old` is for brokers that have no version with the fields of
    `new`."""
    try:
        return await ask(new)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
    return await ask(old)


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Partitions by their topics."""
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def run_to_end(procedure: Coroutine[object, None, A]) -> A:
    """What a procedure gives whose client waits within `ask`, without a loop."""
    try:
        procedure.send(None)
    except StopIteration as end:
        return cast("A", end.value)
    raise RuntimeError("the procedure waits for a loop")
