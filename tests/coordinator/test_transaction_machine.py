"""Transactions under random requests, failures, time-outs and restarts, against a model of who may do what.

Also of `kbroker.coordinator.transactions.assembly`, `kbroker.coordinator.transactions.decisions`,
`kbroker.coordinator.transactions.transaction_partition`, `kbroker.coordinator.transactions.transaction_records`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
from kbroker.coordinator.transactions.transaction_state import PREPARED, TransactionState
from kbroker.errors import ErrorCode
from kbroker.types import NO_PRODUCER_EPOCH, TopicPartition
from tests.coordinator.transaction_world import PARTITIONS, TransactionWorld

IDS = ("a", "b", "c")
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS}
FAILED = {ErrorCode.KAFKA_STORAGE_ERROR}


@dataclass
class Client:
    """A producer as it sees itself; `open`: the partitions of its transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    version: int
    open: set[TopicPartition] = field(default_factory=set)
    is_fenced: bool = False


def without_repeats(ends: list[bool]) -> list[bool]:
    """A marker may be written again where its answer was lost."""
    return [each for each, _ in groupby(ends)]


@settings(max_examples=30, stateful_step_count=40, deadline=None)
class TransactionMachine(RuleBasedStateMachine):
    """The newest producer of an id works, those before it do not; each transaction has one outcome everywhere."""

    @initialize()
    def begin(self) -> None:
        self.world = TransactionWorld()
        self.clients: list[Client] = []
        self.current: dict[str, Client] = {}
        self.given: set[tuple[int, int]] = set()
        # What EndTxn has promised, in order, by the id and epoch that its markers carry.  With version 0 these stay the
        # same from one transaction to the next.
        self.promised: dict[tuple[int, int], list[tuple[frozenset[TopicPartition], bool]]] = {}

    @rule(transactional_id=st.sampled_from(IDS), version=st.sampled_from([0, 2]), fails=st.booleans())
    def init(self, transactional_id: str, version: int, fails: bool) -> None:
        before = self.current.get(transactional_id)
        self.world.disk.left = 0 if fails else None
        answer = self.world.init(transactional_id)
        self.world.disk.left = None
        if isinstance(answer, ErrorCode):
            assert answer in BUSY | (FAILED if fails else set())
            # The transaction may have been aborted on the way.
            if (
                before is not None
                and before.open
                and self.world.found(transactional_id).state not in (TransactionState.ONGOING,)
            ):
                before.is_fenced = True
            return
        assert (answer.producer_id, answer.producer_epoch) not in self.given
        self.given.add((answer.producer_id, answer.producer_epoch))
        if before is not None:
            before.is_fenced = True
        client = Client(transactional_id, answer.producer_id, answer.producer_epoch, version)
        self.current[transactional_id] = client
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS), fails=st.booleans())
    def add(self, data: st.DataObject, partition: TopicPartition, fails: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.world.disk.left = 0 if fails else None
        answer = self.world.add(
            client.transactional_id, client.producer_id, client.epoch, partition, version=client.version
        )
        self.world.disk.left = None
        if isinstance(answer, TransactionMetadata):
            assert not client.is_fenced
            client.open.add(partition)
            assert answer.partitions == client.open
        elif client.is_fenced:
            assert answer in FENCED | BUSY
        else:
            assert answer in BUSY | (FAILED if fails else set())

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), commit=st.booleans(), fails=st.sampled_from([None, 0, 1, 2]))
    def end(self, data: st.DataObject, commit: bool, fails: int | None) -> None:
        client = data.draw(st.sampled_from(self.clients))
        before = self.world.found(client.transactional_id)
        self.world.disk.left = fails
        answer = self.world.end(client.transactional_id, client.producer_id, client.epoch, commit, client.version)
        self.world.disk.left = None
        if isinstance(answer, ErrorCode):
            if client.is_fenced:
                assert answer in FENCED | BUSY | {ErrorCode.INVALID_TXN_STATE}
            else:
                assert answer in BUSY | {ErrorCode.INVALID_TXN_STATE} | (FAILED if fails == 0 else set())
                assert answer is not ErrorCode.INVALID_TXN_STATE or not client.open
            return
        if client.is_fenced:
            # The same answer again to a producer that asks for it again: nothing happens.
            assert answer == before
            return
        if before.state is TransactionState.ONGOING:
            assert before.partitions == client.open
            ends = self.promised.setdefault((answer.producer_id, answer.producer_epoch), [])
            ends.append((frozenset(client.open), commit))
        client.open.clear()
        if client.version == 2 and answer is not before:
            again = self.world.end(client.transactional_id, client.producer_id, client.epoch, commit, client.version)
            assert isinstance(again, TransactionMetadata) or again in BUSY
            if answer.next_producer_id >= 0:
                client.producer_id, client.epoch = answer.next_producer_id, 0
            else:
                client.producer_id, client.epoch = answer.producer_id, answer.producer_epoch
            assert (client.producer_id, client.epoch) not in self.given
            self.given.add((client.producer_id, client.epoch))

    @rule(transactional_id=st.sampled_from(IDS))
    def exhaust_epochs(self, transactional_id: str) -> None:
        """As if the producer had begun 32,000 times."""
        client = self.current.get(transactional_id)
        if client is None or client.open or client.is_fenced:
            return
        metadata = self.world.found(transactional_id)
        if metadata.state in PREPARED or metadata.producer_epoch > 32_000:
            return
        runtime = self.world.coordinator.runtime
        state = runtime.shard(runtime.partition_of(transactional_id)).active()
        state.put(replace(metadata, producer_epoch=32_765))
        # Written with the next transition; a restart before that goes back, which is none of the model's.
        client.epoch = 32_765
        self.given.add((client.producer_id, client.epoch))
        assert isinstance(
            self.world.add(transactional_id, client.producer_id, client.epoch, PARTITIONS[0], version=client.version),
            TransactionMetadata,
        )
        client.open.add(PARTITIONS[0])

    @rule(partition=st.sampled_from(PARTITIONS))
    def refuse_markers(self, partition: TopicPartition) -> None:
        self.world.markers.refused.add(partition)

    @rule()
    def heal(self) -> None:
        self.world.markers.refused.clear()
        self.world.loop.advance(1)

    @rule(seconds=st.sampled_from([1, 70]))
    def time_passes(self, seconds: int) -> None:
        self.world.loop.advance(seconds)
        open_before = {each for each, client in self.current.items() if client.open and not client.is_fenced}
        self.world.abort_timed_out()
        self.world.loop.advance(0.01)
        for each in open_before:
            if self.world.found(each).state is not TransactionState.ONGOING:
                self.current[each].is_fenced = True

    @rule()
    def crash(self) -> None:
        kept = {each: self.world.coordinator.find(each) for each in IDS}
        self.world.restart()
        for each, metadata in kept.items():
            found = self.world.coordinator.find(each)
            if metadata is None or metadata.state in PREPARED:
                assert found is None if metadata is None else found is not None
            else:
                assert found == replace(metadata, last_producer_epoch=NO_PRODUCER_EPOCH)

    @invariant()
    def a_transaction_has_one_outcome(self) -> None:
        for key, promised in self.promised.items():
            for partition in PARTITIONS:
                wanted = [commit for partitions, commit in promised if partition in partitions]
                found = without_repeats(self.world.ends_in(partition, *key))
                assert found == without_repeats(wanted)[: len(found)]

    def teardown(self) -> None:
        """In the end every promise is kept in each partition."""
        if not hasattr(self, "world"):
            return
        self.heal()
        for key, promised in self.promised.items():
            for partition in PARTITIONS:
                wanted = [commit for partitions, commit in promised if partition in partitions]
                found = self.world.ends_in(partition, *key)
                assert len(found) >= len(wanted)
                assert without_repeats(found) == without_repeats(wanted)
        for each in IDS:
            metadata = self.world.coordinator.find(each)
            assert metadata is None or metadata.state not in PREPARED


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.__doc__ = "A zombie would write, or a transaction be committed here and aborted there."


def _script(world: TransactionWorld) -> list[bool]:
    """Two transactions of one producer; whether each was promised to be committed."""
    promised = []
    producer = world.init("a")
    if isinstance(producer, ErrorCode):
        return promised
    pid, epoch = producer.producer_id, producer.producer_epoch
    for partitions in (PARTITIONS[:2], PARTITIONS):
        if isinstance(world.add("a", pid, epoch, *partitions), ErrorCode):
            return promised
        if isinstance(world.end("a", pid, epoch, commit=True), ErrorCode):
            return promised
        promised.append(True)
    return promised


def _appends() -> int:
    world = TransactionWorld()
    assert _script(world) == [True, True]
    return world.disk.count


@pytest.mark.parametrize("stop_at", range(_appends() + 1))
def test_a_stop_at_any_append_leaves_a_transaction_with_one_outcome(stop_at: int) -> None:
    """A broker that dies between two markers would leave half a transaction for good."""
    world = TransactionWorld()
    world.disk.left = stop_at
    promised = _script(world)
    world.disk.left = None
    world.restart()
    world.loop.advance(1)
    metadata = world.coordinator.find("a")
    if metadata is None:
        assert not promised
        assert not world.outcomes()
        return
    assert metadata.state not in PREPARED
    wanted = (PARTITIONS[:2], PARTITIONS)
    # The markers of both carry the same id and epoch: what was promised is complete, in order.
    for count, partitions in enumerate(wanted[: len(promised)], 1):
        for partition in partitions:
            assert len(world.markers.written[partition]) >= (count if partition in PARTITIONS[:2] else 1)
    successor = world.init("a")
    assert isinstance(successor, TransactionMetadata)
    assert world.found("a").state is TransactionState.EMPTY
    for places in world.outcomes().values():
        assert len({commit for _, commit in places}) == 1
