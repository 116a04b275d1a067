"""What all model clients have: a name, chance of their own, connections."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.world import World

NOT_NOW = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""What a broker says that does not lead the partition, or not any more, or has too few replicas."""
IN_DOUBT = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class Client:
    """One client, of its own kind of habits; `run` ends when its budget is used up."""

    is_reader = False
    """Whether it reads until all others are through."""

    def __init__(self, world: World, name: str, chance: random.Random | None = None) -> None:
        """`chance`: whose the client's comes of, where that is not the world's."""
        self.world = world
        self.judge = world.judge
        self.name = name
        self.rng = random.Random((chance or world.rng).getrandbits(64))
        self._connections = 0

    async def run(self) -> None:
        """Do all that it does."""
        raise NotImplementedError

    async def connect(self, node: int) -> ModelConnection | None:
        """A connection to a broker; None where that is not there."""
        self._connections += 1
        return await self.world.connect(node, f"{self.name}.{self._connections}", self.name)

    async def producer_id(self, connection: ModelConnection) -> tuple[int, int]:
        """A new producer's id and epoch, -1 and -1 where none is given now."""
        answer = await connection.answer(wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 3)
        if answer is None or answer.error_code != 0:
            return -1, -1
        self.world.producer_ids.add(answer.producer_id)
        return answer.producer_id, answer.producer_epoch

    async def pause(self) -> None:
        """Let some time pass, mostly none."""
        rng = self.rng
        if not self.world.is_crowd and rng.random() < 0.3:
            await asyncio.sleep(rng.choice(self.world.pauses))

    def sends_last(self, connection: ModelConnection) -> None:
        """At times the end of what a client sends comes right behind its last request."""
        if not connection.end.closed and connection.outstanding and self.rng.random() < 0.2:
            connection.half_close()

    async def try_later(self) -> None:
        """The broker is not there."""
        await asyncio.sleep(self.rng.uniform(0.05, 0.3))

    def read_slowly(self, connection: ModelConnection) -> None:
        """Take no answers for a while."""
        connection.end.pause_reading()
        self.world.loop.call_later(self.rng.choice((0.001, 0.05, 0.5)), self._read_on, connection)

    def _read_on(self, connection: ModelConnection) -> None:
        connection.oldest_since = self.world.loop.time()
        connection.end.resume_reading()
