"""Offsets of a group that a transactional producer commits in its transactions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.schemas import wire
from tests.simulation.coordination import NOT_HERE, OF_GROUP, Coordinator
from tests.simulation.transactions.ledger import GroupPartition, Transaction

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.transactions.transactors import Transactor

FETCH_VERSION = 7
"""The first that may ask for what is stable."""
BUSY = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})
SETTLED_WITHIN_SECONDS = 60.0
PLAIN, PLAIN_VERSION = 0.3, 7
"""The chance that a plain commit comes before, or behind, that of a transaction."""


def group_of(transactional_id: str) -> str:
    """The group whose offsets the producers of a transactional id commit."""
    return f"{transactional_id}-group"


class TransactionalOffsets:
    """What a producer does with the offsets of its group."""

    def __init__(self, producer: Transactor) -> None:
        self._producer = producer
        self._group = group_of(producer.id.name)
        self._coordinator = Coordinator(producer, self._group, OF_GROUP)
        topic = producer.rng.choice(list(producer.world.topics.values()))
        self._topic = topic.name
        self._numbers = list(range(topic.partitions))[:2]

    def close(self) -> None:
        """Hang up."""
        self._coordinator.lose()

    async def commit(self, transaction: Transaction) -> None:
        """Commit offsets as part of a transaction, and at times without one."""
        producer = self._producer
        await self._commit_plainly()
        if not producer.is_new:
            await self._add(transaction)
        request = wire.TxnOffsetCommitRequest
        rows = []
        for number in producer.rng.sample(self._numbers, producer.rng.randint(1, len(self._numbers))):
            offset = producer.world.transactions.sends_offset(transaction, (self._group, self._topic, number))
            rows.append(
                request.TxnOffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offset, committed_metadata=""
                )
            )
        asked = request(
            transactional_id=producer.id.name,
            group_id=self._group,
            producer_id=producer.who.producer[0],
            producer_epoch=producer.who.producer[1],
            topics=[request.TxnOffsetCommitRequestTopic(name=self._topic, partitions=rows)],
        )

        def code_of(answer: Any) -> int:
            return int(max(row.error_code for row in answer.topics[0].partitions))

        newest = producer.id.newest
        _, code, _ = await producer.coordinate(self._coordinator, asked, producer.versions.commit_offsets, code_of)
        if code != 0:
            producer.refused(transaction, code, f"committing offsets of {self._group}")
        producer.succeeded(newest, f"committing offsets of {self._group}")
        if producer.is_new:
            self._is_added()
        await self._commit_plainly()

    async def _commit_plainly(self) -> None:
        """Without a transaction, at times, where nobody else commits to the group."""
        producer, request = self._producer, wire.OffsetCommitRequest
        rng, ledger = producer.later, producer.world.transactions
        if producer.id.users > 1 or rng.random() > PLAIN:
            return
        number = rng.choice(self._numbers)
        alone, offset = ledger.sends_plain_offset(producer.id.name, (self._group, self._topic, number))
        row = request.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=""
        )
        topics = [request.OffsetCommitRequestTopic(name=self._topic, partitions=[row])]
        asked = request(group_id=self._group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        _, code, _ = await producer.coordinate(
            self._coordinator, asked, PLAIN_VERSION, lambda answer: int(answer.topics[0].partitions[0].error_code)
        )
        if code != 0:
            producer.judge.fail(f"{producer.name}: a plain commit to {self._group} answers {ErrorCode(code).name}")
        ledger.ended(alone, commits=True)

    async def _add(self, transaction: Transaction) -> None:
        producer = self._producer
        request = wire.AddOffsetsToTxnRequest(
            transactional_id=producer.id.name,
            producer_id=producer.who.producer[0],
            producer_epoch=producer.who.producer[1],
            group_id=self._group,
        )
        newest = producer.id.newest
        _, code, _ = await producer.coordinate(
            producer.coordinator, request, producer.versions.add_offsets, lambda answer: int(answer.error_code)
        )
        if code != 0:
            producer.refused(transaction, code, f"adding offsets of {self._group}")
        producer.succeeded(newest, f"adding offsets of {self._group}")
        self._is_added()

    def _is_added(self) -> None:
        added = self._producer.id.added
        partition = (GROUP_METADATA_TOPIC, 0)
        added[partition] = added.get(partition, 0) + 1

    async def look(self) -> None:
        """Ask once what is committed."""
        await look(self._producer, self._coordinator, stable=self._producer.rng.random() < 0.5)


async def look(client: Client, coordinator: Coordinator, *, stable: bool, is_last: bool = False) -> bool:
    """Ask a group's coordinator what is committed, and have that judged; False: it cannot say now."""
    ledger, request = client.world.transactions, wire.OffsetFetchRequest
    group = coordinator.key
    places = sorted({place for each in ledger.all for place in each.offsets if place[0] == group})
    topics: dict[str, list[int]] = {}
    for _, topic, number in places:
        topics.setdefault(topic, []).append(number)
    if not topics:
        return True
    rows = [request.OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    answer = await coordinator.ask(request(group_id=group, topics=rows, require_stable=stable), FETCH_VERSION)
    if answer is None or answer.error_code in NOT_HERE:
        coordinator.lose()
        return False
    found: dict[GroupPartition, int] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            if row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT and stable:
                return False
            if row.error_code in NOT_HERE:
                return False
            if row.error_code != 0:
                client.judge.fail(f"{client.name}: {group} is asked for its offsets: {answer}")
            found[group, topic.name, row.partition_index] = row.committed_offset
    # Of a group that others commit to meanwhile it is not known when it was looked at.
    is_alone = all(each.users == 1 for each in ledger.ids.values() if group_of(each.name) == group) or is_last
    for place, offset in found.items():
        ledger.judge_offset(place, offset, stable=stable and is_alone)
    return True


async def judge_offsets(client: Client, group: str) -> None:
    """In the end: no transaction is pending in the group, and what is committed is of the last that was."""
    coordinator = Coordinator(client, group, OF_GROUP)
    until = client.world.loop.time() + SETTLED_WITHIN_SECONDS
    while not await look(client, coordinator, stable=True, is_last=True):
        if client.world.loop.time() > until:
            client.judge.fail(f"the offsets of {group} are not settled")
        await asyncio.sleep(0.05)
    coordinator.lose()
