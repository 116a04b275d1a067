"""Model producers with a transactional id, of both protocols: partitions that the producer adds (up to Produce 11), and
those that brokers add themselves, with an epoch for each transaction (KIP-890).

Some share an id and fence each other, some take longer than their timeout, some leave their last transaction open.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.client import IN_DOUBT, NOT_NOW, Client
from tests.simulation.connection import PATIENCE_SECONDS
from tests.simulation.coordination import MOVED, NOT_HERE, OF_TRANSACTIONS, SERVED_WITHIN_SECONDS, Coordinator
from tests.simulation.records import encode_batch
from tests.simulation.transactions.ledger import Incarnation, Transaction
from tests.simulation.transactions.offsets import TransactionalOffsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""What a producer is told that has a successor, or whose transaction has taken too long."""
EPOCH_PER_TRANSACTION = 2
FIRST_WITH_EXPECTED_EPOCH = 3
LONG_MS = 60_000
MOST_ATTEMPTS = 8
SHARING = 0.15
PAUSING = 0.3
"""The share of transactions that last a while."""
ADDING_MORE = 0.35
"""The share of transactions that add partitions once more in their midst."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Of the requests of one producer."""

    initialize: int
    add: int
    produce: int
    end: int
    add_offsets: int
    commit_offsets: int


class FencedError(Exception):
    """Another producer has the id by now, or the transaction has taken too long."""


class UnresolvedError(Exception):
    """It is not known of a batch whether it is there: the transaction is given up."""


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch of a transaction, sent until it is there."""

    values: list[bytes]
    data: bytes


class Transactor(Client):
    """One transaction after the other, each of a few batches, some with offsets of a group."""

    def __init__(self, world: World, name: str, _requests: int) -> None:
        super().__init__(world, name)
        rng, ledger = self.rng, world.transactions
        self.transactions = max(1, int(rng.choice((1, 3, 8)) * world.scale.share))
        shared = rng.random() < SHARING and bool(ledger.ids)
        self.id = ledger.of(rng.choice(list(ledger.ids)) if shared else name)
        self.id.users += 1
        self.is_new = world.transaction_version >= EPOCH_PER_TRANSACTION and rng.random() < 0.7
        """Whether it has brokers add its partitions, and an epoch for each transaction."""
        if self.is_new:
            self.versions = Versions(5, 0, rng.choice((12, 13)), 5, 0, 5)
        else:
            self.versions = Versions(
                rng.choice((0, 1, 2, 3, 4)),
                rng.choice((0, 1, 2, 3)),
                rng.choice((3, 7, 8, 9, 11)),
                rng.choice((0, 1, 2, 3, 4)),
                rng.choice((0, 1, 2, 3)),
                rng.choice((0, 1, 2, 3, 4)),
            )
        self.timeout_ms = rng.choice((LONG_MS, LONG_MS, LONG_MS, 300, 2000))
        self.leaves_open = self.timeout_ms < LONG_MS and rng.random() < 0.5
        self.topics = [each for each in world.topics.values() if not each.is_old]
        self.coordinator = Coordinator(self, self.id.name, OF_TRANSACTIONS)
        self.who: Incarnation
        self.is_open = False
        """Whether a transaction may be under way that is ended by the next `InitProducerId`."""
        self._offsets = TransactionalOffsets(self) if rng.random() < 0.4 else None
        self._is_dirty = True
        """Whether the next transaction needs another epoch: what was lost may be served at any time."""
        self.later = random.Random(world.later.getrandbits(64))
        """What came later draws of it."""
        self._sequences: dict[Partition, int] = {}
        self._markers_alone: set[Partition] = set()
        """Where a marker came behind its last batch: a broker that has forgotten the producer knows it by the marker
        from then on, and takes its first sequence alone, like Apache Kafka's (compat/test_places_of_producers.py)."""
        self._to_leaders: dict[int, ModelConnection] = {}

    async def run(self) -> None:
        rng = self.rng
        while self.transactions > 0 or self.is_open:
            try:
                if self._is_dirty:
                    await self._begin()
                if self.transactions > 0:
                    self.transactions -= 1
                    await self._transact(is_last=self.transactions == 0)
                    await self.pause()
            except UnresolvedError:
                self._is_dirty = True
            except FencedError:
                self._is_dirty = True
                self.is_open = False
                if rng.random() < 0.5:
                    break
        for each in self._to_leaders.values():
            if not each.gone:
                each.finish(rng)
        self.coordinator.lose()
        if self._offsets is not None:
            self._offsets.close()

    # Requests

    async def coordinate(
        self,
        coordinator: Coordinator,
        request: Any,
        version: int,
        code_of: Callable[[Any], int],
        busy: frozenset[ErrorCode] = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS}),
    ) -> tuple[Any, int, bool]:
        """The answer of whoever coordinates by then, its error, and whether an earlier attempt may have been served."""
        in_doubt = False
        until = self.world.loop.time() + SERVED_WITHIN_SECONDS
        while True:
            answer = await coordinator.ask(request, version)
            if answer is None:
                self._loses()
                in_doubt = True
                coordinator.lose()
            else:
                code = code_of(answer)
                if code not in NOT_HERE and code not in busy:
                    return answer, code, in_doubt
                if code in MOVED or code in NOT_NOW:
                    coordinator.lose()
                in_doubt = in_doubt or code not in busy
                if in_doubt:
                    self._loses()
            if self.world.loop.time() > until:
                self.judge.fail(f"{self.name}: {type(request).__name__} is in vain for {SERVED_WITHIN_SECONDS} s")
            await self.try_later()

    def _loses(self) -> None:
        """A request may have been served, or be served later on."""
        self.id.is_exact = False
        if not self.is_new:
            self._is_dirty = True

    def refused(self, transaction: Transaction, code: int, what: str) -> None:
        """An error that ends the transaction: FencedError where there is a reason."""
        has_expired = self.world.loop.time() >= transaction.expires
        if code in FENCED and (has_expired or self.id.may_be_fenced(self.who)):
            # A broker may have added the partition before.
            self.id.is_exact = self.id.is_exact and not self.is_new
            raise FencedError
        self.judge.fail(f"{self.name}: {what} answers {ErrorCode(code).name}")

    def succeeded(self, newest: Incarnation | None, what: str) -> None:
        """Something of a transaction was done; `newest` had the id when it was asked for."""
        if newest is not self.who and newest is not None and newest.producer[1] > self.who.producer[1]:
            self.judge.fail(f"{self.name}: {what} of epoch {self.who.producer} is done, after {newest.producer}")

    # Steps

    async def _begin(self) -> None:
        """Get the producer id, when the coordinator is there."""
        version, ledger = self.versions.initialize, self.world.transactions
        expects = hasattr(self, "who") and version >= FIRST_WITH_EXPECTED_EPOCH and self.rng.random() < 0.5
        until = self.world.loop.time() + SERVED_WITHIN_SECONDS
        while True:
            expected = self.who.producer if expects else (-1, -1)
            request = wire.InitProducerIdRequest(
                transactional_id=self.id.name,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=expected[0],
                producer_epoch=expected[1],
            )
            connection = await self.coordinator.connection()
            sent = ledger.initializes(self.id)
            answer = await connection.answer(request, version, allowed_seconds=PATIENCE_SECONDS)
            code = None if answer is None else answer.error_code
            if code == 0:
                self.world.producer_ids.add(answer.producer_id)
                self.who = ledger.initialized(self.id, sent, (answer.producer_id, answer.producer_epoch))
                break
            if answer is not None:
                ledger.not_initialized(self.id)
            if code is None or code in MOVED or code in NOT_NOW:
                self.id.is_exact = False
                self.coordinator.lose()
            elif expects and code in FENCED:
                # It has a successor, or was fenced as its transaction took too long.
                expects = False
            elif code not in NOT_HERE and code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self.judge.fail(f"{self.name}: no transaction can begin: {ErrorCode(answer.error_code).name}")
            if self.world.loop.time() > until:
                self.judge.fail(f"{self.name}: no transaction can begin for {SERVED_WITHIN_SECONDS} s")
            await self.try_later()
        self.is_open = self._is_dirty = False
        self._sequences.clear()
        self._markers_alone.clear()

    async def _transact(self, *, is_last: bool) -> None:
        rng, world = self.rng, self.world
        transaction = world.transactions.begins(self.id, self.timeout_ms / 1000)
        self.is_open = True
        topic = rng.choice(self.topics)
        numbers = rng.sample(range(topic.partitions), rng.randint(1, min(2, topic.partitions)))
        partitions = [(topic.name, number) for number in numbers]
        await self._add(transaction, partitions)
        for _ in range(rng.choice((1, 1, 2))):
            await self._produce(transaction, partitions)
            if self.timeout_ms < LONG_MS and rng.random() < 0.2:
                await asyncio.sleep(self.timeout_ms / 1000 * rng.uniform(0.5, 2.0))
        if self.later.random() < PAUSING:
            # So that its end may lie in another segment than its beginning.
            await asyncio.sleep(min(0.3, self.timeout_ms / 1000) * self.later.random())
        if self.later.random() < ADDING_MORE:
            await self._add_more(transaction, partitions)
        if self._offsets is not None and rng.random() < 0.7:
            await self._offsets.commit(transaction)
        if is_last and self.leaves_open:
            self.is_open = False
            return
        self._markers_alone |= transaction.added - transaction.firsts.keys()
        await self._end(transaction, commits=rng.random() < 0.7)
        self.is_open = False
        if self._offsets is not None and rng.random() < 0.5:
            await self._offsets.look()

    async def _add_more(self, transaction: Transaction, known: list[Partition]) -> None:
        """In the midst of the transaction: some that it has and some that it does not, of several topics.  Something is
        written to some of them; each is to get its marker."""
        rng = self.later
        others = [
            (topic.name, number)
            for topic in self.topics
            for number in range(topic.partitions)
            if (topic.name, number) not in known
        ]
        new = rng.sample(others, min(len(others), rng.randint(1, 3)))
        again = rng.sample(known, rng.randint(0 if new else 1, len(known)))
        chosen = rng.sample([*new, *again], len(new) + len(again))
        await self._add(transaction, chosen)
        written = rng.sample(chosen, rng.randint(1 if self.is_new else 0, len(chosen)))
        if written:
            await self._produce(transaction, written)

    async def _add(self, transaction: Transaction, partitions: list[Partition]) -> None:
        """Where brokers do not add them themselves."""
        if self.is_new:
            return
        request = wire.AddPartitionsToTxnRequest
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)
        asked = request(
            v3_and_below_transactional_id=self.id.name,
            v3_and_below_producer_id=self.who.producer[0],
            v3_and_below_producer_epoch=self.who.producer[1],
            v3_and_below_topics=[
                request.AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic.items()
            ],
        )

        def code_of(answer: Any) -> int:
            told = {
                (found.name, row.partition_index): int(row.partition_error_code)
                for found in answer.results_by_topic_v3_and_below
                for row in found.results_by_partition
            }
            if sorted(told) != sorted(partitions):
                self.judge.fail(f"{self.name}: {partitions} are to be added, the answer has {told}")
            return max(told.values())

        newest = self.id.newest
        _, code, _ = await self.coordinate(self.coordinator, asked, self.versions.add, code_of)
        if code != 0:
            self.refused(transaction, code, f"adding {partitions}")
        self.succeeded(newest, f"adding {partitions}")
        for partition in partitions:
            if partition not in transaction.added:
                transaction.added.add(partition)
                self.id.added[partition] = self.id.added.get(partition, 0) + 1

    async def _end(self, transaction: Transaction, *, commits: bool) -> None:
        ledger, version = self.world.transactions, self.versions.end
        request = wire.EndTxnRequest(
            transactional_id=self.id.name,
            producer_id=self.who.producer[0],
            producer_epoch=self.who.producer[1],
            committed=commits,
        )
        newest = self.id.newest
        # Until it is told otherwise.
        ledger.ends(transaction, commits=commits)
        answer, code, in_doubt = await self.coordinate(
            self.coordinator, request, version, lambda answer: int(answer.error_code)
        )
        if code != 0:
            if not in_doubt:
                ledger.ends(transaction, commits=False)
            self.refused(transaction, code, "EndTxn")
        self.succeeded(newest, "EndTxn")
        ledger.ended(transaction, commits=commits)
        if self.is_new:
            ledger.goes_on(self.id, self.who, (answer.producer_id, answer.producer_epoch))
            self._sequences.clear()

    # Batches

    async def _produce(self, transaction: Transaction, partitions: list[Partition]) -> None:
        deliveries = []
        for partition in partitions:
            batches = [self._batch(transaction, partition) for _ in range(self.rng.choice((1, 1, 2, 3)))]
            deliveries.append(self._deliver(transaction, partition, batches))
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        errors = [each for each in outcomes if each is not None]
        if errors:
            raise next((each for each in errors if isinstance(each, FencedError)), errors[0])

    def _batch(self, transaction: Transaction, partition: Partition) -> _Batch:
        values = [self.world.next_value(0) for _ in range(self.rng.randint(1, 3))]
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        data = encode_batch(values, self.world.now_ms(), producer=(*self.who.producer, sequence), transactional=True)
        self.world.transactions.sends(transaction, partition, values)
        self.judge.sends(self.name, partition, values)
        return _Batch(values, data)

    async def _deliver(self, transaction: Transaction, partition: Partition, batches: list[_Batch]) -> None:
        """Send batches of one partition until all are there."""
        world, left = self.world, batches
        for _ in range(MOST_ATTEMPTS):
            newest = self.id.newest
            connection = await self._to_leader(partition)
            answers = [] if connection is None else await self._send(connection, partition, left)
            again: list[_Batch] = []
            for batch, answer in zip(left, answers, strict=False):
                code = None if answer is None else answer.responses[0].partition_responses[0].error_code
                if code == 0:
                    self.succeeded(newest, f"a batch in {partition}")
                    self._markers_alone.discard(partition)
                    if self.is_new and partition not in transaction.added:
                        transaction.added.add(partition)
                        self.id.added[partition] = self.id.added.get(partition, 0) + 1
                    base = answer.responses[0].partition_responses[0].base_offset
                    self.judge.acknowledged(self.name, partition, batch.values, base, 0, committed=False, certain=True)
                    world.transactions.acknowledged(transaction, partition, base)
                elif code is None or self._may_repeat(transaction, code, is_behind_another=bool(again)):
                    self._loses()
                    again.append(batch)
                elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._may_be_forgotten(partition):
                    raise UnresolvedError
                else:
                    self.refused(transaction, code, f"a batch in {partition}")
            left = again if connection is not None else left
            if not left:
                break
            world.forget_leader(partition)
            await self.try_later()
        else:
            raise UnresolvedError

    def _may_repeat(self, transaction: Transaction, code: int, *, is_behind_another: bool) -> bool:
        """Whether a batch with this error is sent again."""
        if self.world.tolerates(code) or (code == ErrorCode.CONCURRENT_TRANSACTIONS and self.is_new):
            return True
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return is_behind_another
        if code == ErrorCode.NOT_ENOUGH_REPLICAS:
            # The coordinator, which has to be asked, is away, or at the end of a transaction that it ends by itself.
            has_expired = self.world.loop.time() >= transaction.expires
            return self.world.fails or has_expired or self.id.may_be_fenced(self.who)
        return code in IN_DOUBT and self.world.fails

    def _may_be_forgotten(self, partition: Partition) -> bool:
        """Whether brokers may know the producer by a marker alone."""
        return self.world.forgets_after < math.inf and partition in self._markers_alone

    async def _to_leader(self, partition: Partition) -> ModelConnection | None:
        node = await self.world.leader(partition)
        found = self._to_leaders.get(node)
        if found is None or found.gone or found.end.closed:
            self._to_leaders.pop(node, None)
            found = await self.connect(node)
            if found is None:
                return None
            self._to_leaders[node] = found
        return found

    async def _send(self, connection: ModelConnection, partition: Partition, batches: list[_Batch]) -> list[Any]:
        """The answers to all of them, which are under way at once."""
        request = wire.ProduceRequest
        world = self.world
        waiting = []
        for batch in batches:
            rows = [request.PartitionProduceData(index=partition[1], records=batch.data)]
            topic = request.TopicProduceData(
                name=partition[0], topic_id=world.topics[partition[0]].topic_id, partition_data=rows
            )
            asked = request(transactional_id=self.id.name, acks=-1, timeout_ms=20_000, topic_data=[topic])
            answered: asyncio.Future[Any] = world.loop.create_future()
            connection.ask(asked, self.versions.produce, answered.set_result)
            waiting.append(answered)
        connection.flush()
        if self.rng.random() < world.scale.aborts:
            connection.abort()
        return await asyncio.gather(*waiting)
