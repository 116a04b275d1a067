"""Model producers with a transactional id: whole transactions are there for who reads what is committed, or nothing of
them is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.client import Client
from tests.simulation.records import encode_batch

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

TRANSACTION_KEY = 1
NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class Fate(Enum):
    """What became of a transaction, as far as its producer was told."""

    ABORTED = 0
    COMMITTED = 1
    UNKNOWN = 2


@dataclass(slots=True, eq=False)
class Transaction:
    """Values by partition."""

    who: str
    values: dict[Partition, list[bytes]] = field(default_factory=dict)
    fate: Fate = Fate.ABORTED


class TransactionError(Exception):
    """The connection is gone: the transaction ends as the next `InitProducerId` has it."""


class Transactor(Client):
    """One transaction after the other, each of a few batches."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        self.transactions = max(1, requests // 5)
        self._producer = (-1, -1)
        self._is_open = False
        """Whether a transaction may be under way that is ended by the next `InitProducerId`."""
        self._sequences: dict[Partition, int] = {}

    async def run(self) -> None:
        while self.transactions > 0 or self._is_open:
            connection = await self.connect(1)
            if connection is None:
                await self.try_later()
                continue
            try:
                await self._begin(connection)
                while self.transactions > 0:
                    self.transactions -= 1
                    await self._transact(connection)
                    await self.pause()
            except TransactionError:
                await self.try_later()
            if not connection.gone:
                connection.finish(self.rng)

    async def _ask(self, connection: ModelConnection, request: Any, version: int) -> Any:
        if connection.gone or connection.end.closed:
            raise TransactionError
        answer = await connection.answer(request, version)
        if answer is None:
            raise TransactionError
        return answer

    async def _begin(self, connection: ModelConnection) -> None:
        """Get the producer id, when the coordinator is there."""
        find = wire.FindCoordinatorRequest(key=self.name, key_type=TRANSACTION_KEY)
        begin = wire.InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        for request, version in ((find, 3), (begin, 3)):
            while (answer := await self._ask(connection, request, version)).error_code != 0:
                if answer.error_code not in NOT_YET:
                    self.judge.fail(f"{self.name}: no transaction can begin: {ErrorCode(answer.error_code).name}")
                await self.try_later()
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._is_open = False
        self._sequences.clear()

    async def _transact(self, connection: ModelConnection) -> None:
        rng, world = self.rng, self.world
        transaction = Transaction(self.name)
        world.transactions.append(transaction)
        self._is_open = True
        topic = rng.choice(list(world.topics.values()))
        numbers = rng.sample(range(topic.partitions), rng.randint(1, min(2, topic.partitions)))
        await self._add(connection, topic.name, numbers)
        answers = []
        for _ in range(rng.randint(1, 3)):
            partition = (topic.name, rng.choice(numbers))
            answers.append(self._produce(connection, transaction, partition))
        connection.flush()
        if rng.random() < world.scale.aborts:
            connection.abort()
        await asyncio.gather(*answers)
        commits = rng.random() < 0.7
        # Until it is told otherwise.
        transaction.fate = Fate.UNKNOWN if commits else Fate.ABORTED
        await self._end(connection, commits=commits)
        transaction.fate = Fate.COMMITTED if commits else Fate.ABORTED
        self._is_open = False

    async def _add(self, connection: ModelConnection, topic: str, numbers: list[int]) -> None:
        request = wire.AddPartitionsToTxnRequest
        while True:
            answer = await self._ask(
                connection,
                request(
                    v3_and_below_transactional_id=self.name,
                    v3_and_below_producer_id=self._producer[0],
                    v3_and_below_producer_epoch=self._producer[1],
                    v3_and_below_topics=[request.AddPartitionsToTxnTopic(name=topic, partitions=numbers)],
                ),
                3,
            )
            rows = [row for found in answer.results_by_topic_v3_and_below for row in found.results_by_partition]
            codes = {row.partition_error_code for row in rows}
            if codes == {0}:
                return
            if not codes & NOT_YET:
                self.judge.fail(f"{self.name}: {topic} {numbers} cannot be added: {codes}")
            await self.try_later()

    def _produce(
        self, connection: ModelConnection, transaction: Transaction, partition: Partition
    ) -> asyncio.Future[None]:
        request = wire.ProduceRequest
        values = [self.world.next_value(0) for _ in range(self.rng.randint(1, 3))]
        transaction.values.setdefault(partition, []).extend(values)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        data = encode_batch(values, self.world.now_ms(), producer=(*self._producer, sequence), transactional=True)
        self.judge.sends(self.name, partition, values)
        done: asyncio.Future[None] = self.world.loop.create_future()

        def answered(answer: Any) -> None:
            if answer is None:
                done.set_exception(TransactionError())
                return
            row = answer.responses[0].partition_responses[0]
            if row.error_code != 0:
                self.judge.fail(f"{connection.name}: {partition} answers {ErrorCode(row.error_code).name}")
            self.judge.acknowledged(
                connection.name, partition, values, row.base_offset, 0, committed=False, certain=True
            )
            done.set_result(None)

        rows = [request.PartitionProduceData(index=partition[1], records=data)]
        topics = [request.TopicProduceData(name=partition[0], partition_data=rows)]
        connection.ask(request(transactional_id=self.name, acks=-1, timeout_ms=20_000, topic_data=topics), 9, answered)
        return done

    async def _end(self, connection: ModelConnection, *, commits: bool) -> None:
        request = wire.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commits,
        )
        while (answer := await self._ask(connection, request, 3)).error_code != 0:
            if answer.error_code not in NOT_YET:
                self.judge.fail(f"{self.name}: the transaction cannot end: {ErrorCode(answer.error_code).name}")
            await self.try_later()


def judge_transactions(world: World, visible: dict[Partition, set[bytes]]) -> None:
    """Each is visible as a whole or not at all, as its producer was told.  One of a topic without values has no say."""
    for each in world.transactions:
        seen = [value in visible[partition] for partition, values in each.values.items() for value in values]
        if not seen or (each.fate is Fate.UNKNOWN and all(seen) is any(seen)):
            continue
        if any(seen) is not all(seen) or all(seen) is not (each.fate is Fate.COMMITTED):
            world.judge.fail(
                f"{each.who}: of a transaction that is {each.fate.name}, {sum(seen)} of {len(seen)} are seen"
            )
