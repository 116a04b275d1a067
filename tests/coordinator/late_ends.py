"""Ends of transactions that come late, twice, or in another version than the transaction began in.

What Apache Kafka 4.3.1 answers to them is in `vectors/kafka-4.3.1-late-ends.json`, by
`python -m tests.coordinator.late_ends HOST PORT FILE` (Kafka with
transaction.abort.timed.out.transaction.cleanup.interval.ms=200).  Ids and epochs are noted as they are to those that
the producer began with: the same id or another, and how much further the epoch is.
"""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from kbroker.client.connection import Connection
from kbroker.coordinator.transactions.transaction_metadata import (
    EPOCH_PER_TRANSACTION,
    EXHAUSTED_EPOCH,
    TransactionMetadata,
)
from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.records.batch import RecordBatchBuilder
from kbroker.schemas import request_message
from tests.coordinator.transaction_world import PARTITIONS, TransactionWorld

SECONDS = 20
NO_ID = -1
# How partitions come into a transaction: by a request of their own, or with the records of a newer producer.
ADDED, PRODUCED = "added", "produced"
# Of EndTxn: before and since each transaction has an epoch of its own.
OLD, NEW = 4, 5
BOTH = (False, True)
ENDED = ("CompleteAbort", "CompleteCommit")


class Given(NamedTuple):
    """An answer with an id and an epoch."""

    code: int
    producer_id: int = NO_ID
    epoch: int = -1


class Producer(ABC):
    """One transactional id, and who speaks for it."""

    producer_id: int
    epoch: int

    @abstractmethod
    def init(self) -> Given:
        """InitProducerId."""

    @abstractmethod
    def add(self, how: str) -> int:
        """A partition becomes part of the transaction."""

    @abstractmethod
    def end(self, version: int, commit: bool, epoch: int) -> Given:
        """EndTxn by the producer's first id."""

    @abstractmethod
    def time_out(self) -> None:
        """The transaction outlives its time, and is aborted."""

    @abstractmethod
    def state(self) -> str:
        """Of the transaction, where it does not change by itself."""

    def begin(self) -> None:
        """Take an id and an epoch."""
        _, self.producer_id, self.epoch = self.init()

    def ended(self, version: int, commit: bool, later: int = 0) -> list[object]:
        """The answer to an EndTxn."""
        return self._noted(self.end(version, commit, min(self.epoch + later, EXHAUSTED_EPOCH + 1)))

    def renewed(self) -> list[object]:
        """The answer to the next InitProducerId."""
        return self._noted(self.init())

    def _noted(self, given: Given) -> list[object]:
        if given.producer_id == NO_ID:
            return [given.code, "none"]
        same = given.producer_id == self.producer_id
        return [given.code, "same" if same else "other", given.epoch - (self.epoch if same else 0)]


Make = Callable[[], Producer]


def conversation(make: Make) -> Iterator[tuple[str, list[object]]]:
    """Every case, by name."""
    for how in (ADDED, PRODUCED):
        for version in (OLD, NEW):
            for commit in BOTH:
                for later in (0, 1):
                    producer = make()
                    said: list[object] = [producer.add(how)]
                    producer.time_out()
                    said += [producer.ended(version, commit, later), producer.state(), producer.renewed()]
                    yield f"timed out, {how}, v{version} {_word(commit)}, epoch +{later}", said
                producer = make()
                said = [producer.add(how), producer.renewed(), producer.ended(version, commit), producer.state()]
                yield f"fenced, {how}, v{version} {_word(commit)}", said
                yield from _twice(make, how, version, commit)
    for first, second in ((ADDED, PRODUCED), (PRODUCED, ADDED)):
        for version in (OLD, NEW):
            producer = make()
            said = [producer.add(first), producer.add(second), producer.ended(version, True), producer.state()]
            said += [producer.ended(version, True), producer.ended(OLD + NEW - version, True), producer.renewed()]
            yield f"{first} and {second}, v{version}", said
    for version in (OLD, NEW):
        for commit in BOTH:
            producer = make()
            said = [producer.ended(version, commit), producer.state(), producer.ended(version, commit)]
            yield f"empty, v{version} {_word(commit)}", [*said, producer.renewed()]


def _twice(make: Make, how: str, first: int, first_commits: bool) -> Iterator[tuple[str, list[object]]]:
    for second in (OLD, NEW):
        for commit in BOTH:
            for later in (0, 1):
                producer = make()
                said: list[object] = [producer.add(how), producer.ended(first, first_commits), producer.state()]
                said += [producer.ended(second, commit, later), producer.state(), producer.renewed()]
                name = f"{how}, v{first} {_word(first_commits)} and v{second} {_word(commit)}, epoch +{later}"
                yield name, said


def _word(commit: bool) -> str:
    return "commit" if commit else "abort"


class InMemory(Producer):
    """Speaks to a coordinator without a broker around it."""

    def __init__(self, is_exhausted: bool, epoch: int = EXHAUSTED_EPOCH) -> None:
        self._world = TransactionWorld()
        self.begin()
        if is_exhausted:
            known = self._world.found("t")
            partition = self._world.coordinator.runtime.partition_of("t")
            self._world.coordinator.runtime.shard(partition).active().put(replace(known, producer_epoch=epoch))
            self.epoch = epoch

    def init(self) -> Given:
        answer = self._world.init("t", timeout_ms=800)
        if isinstance(answer, ErrorCode):
            assert answer is ErrorCode.CONCURRENT_TRANSACTIONS
            answer = self._world.init("t", timeout_ms=800)
        return self._given(answer)

    def add(self, how: str) -> int:
        version = EPOCH_PER_TRANSACTION if how == PRODUCED else 0
        answer = self._world.add("t", self.producer_id, self.epoch, PARTITIONS[0], version=version)
        return int(answer) if isinstance(answer, ErrorCode) else 0

    def end(self, version: int, commit: bool, epoch: int) -> Given:
        generation = EPOCH_PER_TRANSACTION if version == NEW else 0
        given = self._given(self._world.end("t", self.producer_id, epoch, commit, version=generation))
        return given if version == NEW else Given(given.code)

    def time_out(self) -> None:
        self._world.loop.advance(1)
        self._world.abort_timed_out()
        assert self.state() == "CompleteAbort"

    def state(self) -> str:
        return self._world.found("t").state.value

    @staticmethod
    def _given(answer: TransactionMetadata | ErrorCode) -> Given:
        if isinstance(answer, ErrorCode):
            return Given(int(answer))
        if answer.next_producer_id != NO_ID:
            return Given(0, answer.next_producer_id, 0)
        return Given(0, answer.producer_id, answer.producer_epoch)


class OverTheWire(Producer):
    """Speaks to a broker, whichever it is."""

    count = 0

    def __init__(self, connection: Connection, is_exhausted: bool) -> None:
        OverTheWire.count += 1
        self._connection = connection
        self._name = f"{time.time_ns()}-{OverTheWire.count}"
        self.begin()
        while is_exhausted and self.epoch < EXHAUSTED_EPOCH:
            self._rush(min(200, EXHAUSTED_EPOCH - self.epoch))

    def _rush(self, count: int) -> None:
        tickets = [self._connection.post(self._init_request()) for _ in range(count)]
        for answer in map(self._connection.take, tickets):
            if answer.error_code == 0:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def _init_request(self) -> Any:
        init = request_message(ApiKey.INIT_PRODUCER_ID)
        return init(transactional_id=self._name, transaction_timeout_ms=800, producer_id=-1, producer_epoch=-1)

    def init(self) -> Given:
        answer = _patiently(lambda: self._connection.send(self._init_request()))
        return Given(answer.error_code, answer.producer_id, answer.producer_epoch)

    def add(self, how: str) -> int:
        if how == PRODUCED:
            return self._produce()
        add = request_message(ApiKey.ADD_PARTITIONS_TO_TXN)
        request = add(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[add.AddPartitionsToTxnTopic(name="late", partitions=[0])],
        )
        answer = self._connection.send(request, version=3)
        code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return code

    def _produce(self) -> int:
        builder = RecordBatchBuilder(
            producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=0, is_transactional=True
        )
        builder.append(None, b"x", time.time_ns() // 1_000_000)
        produce = request_message(ApiKey.PRODUCE)
        rows = [produce.PartitionProduceData(index=0, records=bytes(builder.build()))]
        topic = produce.TopicProduceData(name="late", partition_data=rows)
        request = produce(transactional_id=self._name, acks=-1, timeout_ms=30_000, topic_data=[topic])
        answer = _patiently(lambda: self._connection.send(request, version=12).responses[0].partition_responses[0])
        code: int = answer.error_code
        return code

    def end(self, version: int, commit: bool, epoch: int) -> Given:
        end = request_message(ApiKey.END_TXN)
        request = end(transactional_id=self._name, producer_id=self.producer_id, producer_epoch=epoch, committed=commit)
        answer = _patiently(lambda: self._connection.send(request, version=version))
        return Given(answer.error_code, answer.producer_id, answer.producer_epoch)

    def time_out(self) -> None:
        while self.state() not in ENDED:
            pass

    def state(self) -> str:
        describe = request_message(ApiKey.DESCRIBE_TRANSACTIONS)
        while True:
            answer = self._connection.send(describe(transactional_ids=[self._name])).transaction_states[0]
            state: str = answer.transaction_state
            if not state.startswith("Prepare"):
                return state


def _patiently(ask: Callable[[], Any]) -> Any:
    """The answer, once nothing is loaded or ended any more."""
    busy = (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
    end = time.monotonic() + SECONDS
    while True:
        answer = ask()
        if answer.error_code not in busy or time.monotonic() > end:
            return answer


def main(host: str, port: int, path: str) -> None:
    """Ask a broker, and note what it says."""
    connection = Connection(host, port)
    create = request_message(ApiKey.CREATE_TOPICS)
    topic = create.CreatableTopic(name="late", num_partitions=1, replication_factor=1)
    connection.send(create(topics=[topic], timeout_ms=30_000))
    found = {
        name: dict(conversation(lambda is_exhausted=is_exhausted: OverTheWire(connection, is_exhausted)))  # type: ignore[misc]
        for name, is_exhausted in (("fresh", False), ("exhausted", True))
    }
    with open(path, "w") as file:
        json.dump(found, file, indent=0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
