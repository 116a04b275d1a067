"""What is asked of a broker about transactions (`tests.handlers.changes`): codes and epochs, in both generations."""

from __future__ import annotations

import time
from typing import Any

from tests.compat.waiting import wait_for
from tests.handlers.changes import change
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session, produce_values

CONCURRENT_TRANSACTIONS = 51
COORDINATOR_ERRORS = (14, 15, 16)
READ_COMMITTED = 1


class Id:
    """A transactional id as its newest producer sees it."""

    def __init__(self, s: Session, name: str) -> None:
        self.s = s
        self.name = name
        self.pid, self.epoch = -1, -1
        self.first_pid = -1

    def _retried(self, api: str, version: int, values: dict[str, Any]) -> Any:
        """Until the coordinator is there, and the transaction before is complete."""

        def ask() -> list[Any]:
            answer = self.s.quietly(api, version, **values)
            return [] if answer.error_code in (*COORDINATOR_ERRORS, CONCURRENT_TRANSACTIONS) else [answer]

        return wait_for(ask, f"{api} of {self.name}")[0]

    def init(self, step: str, version: int = 5, **values: Any) -> None:
        asked = {"transactional_id": self.name, "transaction_timeout_ms": 60_000, **values}
        answer = self._retried("InitProducerId", version, asked)
        if self.first_pid < 0:
            self.first_pid = answer.producer_id
        is_same = answer.producer_id == self.first_pid
        self.s.record(step, [answer.error_code, is_same, answer.producer_epoch])
        if not answer.error_code:
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch

    def _who(self, values: dict[str, Any]) -> dict[str, Any]:
        epoch = values.pop("epoch", self.epoch)
        return {"producer_id": values.pop("pid", self.pid), "producer_epoch": epoch}

    def add(self, step: str, topics: dict[str, list[int]], version: int = 3, **values: Any) -> None:
        who = {f"v3_and_below_{key}": value for key, value in self._who(values).items()}
        name = values.pop("name", self.name)
        rows = [{"name": topic, "partitions": indexes} for topic, indexes in topics.items()]
        answer = self.s.quietly(
            "AddPartitionsToTxn", version, v3_and_below_transactional_id=name, v3_and_below_topics=rows, **who
        )
        codes = {
            topic.name: {str(row.partition_index): row.partition_error_code for row in topic.results_by_partition}
            for topic in answer.results_by_topic_v3_and_below
        }
        self.s.record(step, codes)

    def batched(self, step: str, topics: dict[str, list[int]], version: int = 5, **values: Any) -> None:
        rows = [{"name": topic, "partitions": indexes} for topic, indexes in topics.items()]
        asked = {"transactional_id": self.name, "topics": rows, "verify_only": values.pop("verify_only", True)}
        answer = self.s.quietly("AddPartitionsToTxn", version, transactions=[{**asked, **self._who(values)}])
        codes = {
            topic.name: {str(row.partition_index): row.partition_error_code for row in topic.results_by_partition}
            for result in answer.results_by_transaction
            for topic in result.topic_results
        }
        self.s.record(step, [answer.error_code, codes])

    def offsets(self, step: str, group: str, version: int = 3, **values: Any) -> None:
        asked = {"transactional_id": values.pop("name", self.name), "group_id": group, **self._who(values)}
        self.s.record(step, self.s.quietly("AddOffsetsToTxn", version, **asked).error_code)

    def commit_offsets(self, step: str, group: str, version: int = 3, topic: str = "txn", **values: Any) -> None:
        partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
        who = {"transactional_id": self.name, "group_id": group, **self._who(values)}
        answer = self.s.quietly(
            "TxnOffsetCommit", version, **who, **values, topics=[{"name": topic, "partitions": partitions}]
        )
        self.s.record(step, [row.error_code for each in answer.topics for row in each.partitions])

    def end(self, step: str, commit: bool, version: int = 4, *, moves: bool = True, **values: Any) -> None:
        asked = {"transactional_id": values.pop("name", self.name), "committed": commit, **self._who(values)}
        answer = self._retried("EndTxn", version, asked)
        if version < 5:
            self.s.record(step, answer.error_code)
        else:
            self.s.record(step, [answer.error_code, answer.producer_id == self.pid, answer.producer_epoch])
            if not answer.error_code and moves:
                self.pid, self.epoch = answer.producer_id, answer.producer_epoch
        self.complete()

    def complete(self) -> None:
        def state() -> bool:
            (row,) = self.s.quietly("DescribeTransactions", 0, transactional_ids=[self.name]).transaction_states
            return not row.transaction_state.startswith("Prepare")

        wait_for(state, f"the transaction of {self.name} to be complete")

    def produce(self, step: str, sequence: int, version: int = 11, topic: str = "txn", **values: Any) -> None:
        who = self._who(values)
        batch = Batch([(b"k", b"v")], attributes=0x10, base_sequence=sequence, **who)
        asked = produce_values(topic, batch, partition=values.pop("partition", 0))
        answer = self.s.quietly("Produce", version, transactional_id=values.pop("name", self.name), **asked)
        self.s.record(step, answer.responses[0].partition_responses[0].error_code)

    def state(self, step: str) -> None:
        (row,) = self.s.quietly("DescribeTransactions", 0, transactional_ids=[self.name]).transaction_states
        topics = {topic.topic: sorted(topic.partitions) for topic in row.topics}
        self.s.record(step, [row.error_code, row.transaction_state, row.producer_epoch, topics])


def stable_offset(s: Session) -> int:
    """How far read_committed consumers get in partition 0."""
    rows = [{"name": "txn", "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]}]
    found = s.quietly("ListOffsets", 7, replica_id=-1, isolation_level=READ_COMMITTED, topics=rows)
    return int(found.topics[0].partitions[0].offset)


def fetched(s: Session, step: str, group: str) -> None:
    """A group's stable offset."""
    topics = [{"name": "txn", "partition_indexes": [0]}]
    answer = s.quietly("OffsetFetch", 7, group_id=group, topics=topics, require_stable=True)
    row = answer.topics[0].partitions[0]
    s.record(step, [row.error_code, row.committed_offset])


def begin(s: Session, name: str) -> Id:
    """A producer with the topic `txn` of two partitions."""
    found = s.quietly("Metadata", 9, topics=[{"name": "txn"}], allow_auto_topic_creation=False).topics[0]
    if found.error_code:
        s.create("txn", 2)
    wait_for(
        lambda: not s.quietly("FindCoordinator", 4, key_type=1, coordinator_keys=[name]).coordinators[0].error_code,
        f"the coordinator of {name}",
    )
    return Id(s, name)


@change
def transactions_of_the_first_generation(s: Session) -> None:
    tx = begin(s, "first-generation")
    start = stable_offset(s)
    tx.init("init")
    tx.add("unknown id", {"txn": [0]}, name="first-never")
    tx.add("empty id", {"txn": [0]}, name="")
    tx.add("another producer id", {"txn": [0]}, pid=tx.pid + 1_000)
    tx.add("add with a later epoch", {"txn": [0]}, epoch=5)
    tx.add("add with a later epoch, v1", {"txn": [0]}, 1, epoch=5)
    tx.add("a partition that is not", {"txn": [0, 7], "never": [0]})
    tx.end("commit without a transaction", True)
    tx.end("abort without a transaction", False)
    tx.produce("a batch before its partition was added", 0)
    tx.produce("the same, v10", 0, 10)
    tx.add("add", {"txn": [0]})
    tx.add("add again", {"txn": [0]})
    tx.state("ongoing")
    tx.batched("verify", {"txn": [0]})
    tx.batched("verify one that was not added", {"txn": [0, 1]})
    tx.batched("verify with a wrong epoch", {"txn": [0]}, epoch=9)
    tx.batched("verify with a wrong id", {"txn": [0]}, pid=tx.pid + 1_000)
    tx.produce("write", 0)
    tx.produce("write on", 1)
    tx.produce("write to one that was not added", 0, partition=1)
    tx.produce("to one that was not added, v10", 0, 10, partition=1)
    tx.produce("write with an earlier epoch", 2, epoch=tx.epoch - 1)
    tx.produce("write with a later epoch", 0, epoch=tx.epoch + 1)
    tx.produce("write as another producer", 0, pid=tx.pid + 1_000)
    s.record("stable while it is open", stable_offset(s) - start)
    tx.end("a later epoch ends", True, epoch=tx.epoch + 1)
    tx.end("a later epoch ends, v1", True, 1, epoch=tx.epoch + 1)
    tx.end("commit", True)
    tx.end("commit again", True)
    tx.end("abort after the commit", False)
    s.record("stable after the commit", stable_offset(s) - start)
    tx.state("complete")
    tx.produce("a batch after the end", 2)
    tx.add("add for the next", {"txn": [0, 1]})
    tx.produce("write in the next", 2)
    tx.end("abort", False)
    tx.end("abort again", False)
    tx.end("commit after the abort", True)
    s.record("stable after the abort", stable_offset(s) - start)
    tx.state("aborted")


@change
def transactions_of_the_second_generation(s: Session) -> None:
    tx = begin(s, "second-generation")
    tx.init("init")
    tx.end("commit without a transaction", True, 5)
    tx.end("abort without a transaction", False, 5)
    tx.produce("write", 0, 12)
    tx.produce("write on", 1, 12)
    tx.state("ongoing")
    before = (tx.pid, tx.epoch)
    tx.end("commit", True, 5)
    tx.end("commit again as before", True, 5, pid=before[0], epoch=before[1], moves=False)
    tx.end("abort as before", False, 5, pid=before[0], epoch=before[1], moves=False)
    tx.end("commit as now", True, 5)
    tx.produce("write with the epoch before", 2, 12, epoch=before[1])
    tx.produce("write with the new one", 0, 12)
    before = (tx.pid, tx.epoch)
    tx.end("abort", False, 5)
    tx.end("abort again as before", False, 5, pid=before[0], epoch=before[1], moves=False)
    tx.end("commit after it", True, 5)
    tx.end("abort as now", False, 5)
    tx.batched("add for the next", {"txn": [1]}, verify_only=False)
    tx.state("ongoing again")
    tx.produce("a first batch with a sequence", 7, 12, partition=1)
    tx.end("end of it", True, 5)
    tx.produce("without its first batches", 3, 12)
    tx.state("in the end")


@change
def producers_that_begin(s: Session) -> None:
    tx = begin(s, "begins")
    tx.init("no time", transaction_timeout_ms=0)
    tx.init("too much time", transaction_timeout_ms=900_001)
    tx.init("empty id", transactional_id="")
    tx.init("an epoch without an id", producer_epoch=3)
    tx.init("init")
    tx.init("init again")
    tx.init("go on", producer_id=tx.pid, producer_epoch=tx.epoch)
    tx.init("go on, asked again", producer_id=tx.pid, producer_epoch=tx.epoch - 1)
    tx.init("go on from long ago", producer_id=tx.pid, producer_epoch=0)
    tx.init("go on from long ago, v3", 3, producer_id=tx.pid, producer_epoch=0)
    tx.init("go on as another", producer_id=tx.pid + 1_000, producer_epoch=0)
    tx.add("add", {"txn": [0]})
    tx.produce("write", 0)
    zombie = (tx.pid, tx.epoch)
    tx.init("a successor")
    tx.produce("the zombie writes", 1, pid=zombie[0], epoch=zombie[1])
    tx.end("the zombie ends", True, pid=zombie[0], epoch=zombie[1])
    tx.add("the zombie adds", {"txn": [0]}, pid=zombie[0], epoch=zombie[1])
    tx.offsets("the zombie adds offsets", "begins-group", pid=zombie[0], epoch=zombie[1])
    tx.offsets("the same, v1", "begins-group", 1, pid=zombie[0], epoch=zombie[1])
    tx.init("the zombie goes on", producer_id=zombie[0], producer_epoch=zombie[1])
    tx.state("in the end")


@change
def offsets_in_transactions(s: Session) -> None:
    tx = begin(s, "offsets")
    group = "offsets-in-transactions"
    s.coordinator(group)
    tx.init("init")
    tx.commit_offsets("before the group was added", group)
    tx.commit_offsets("the same, v4", group, 4)
    tx.offsets("no such id", group, name="offsets-never")
    tx.offsets("add the group", group)
    tx.commit_offsets("commit", group)
    tx.commit_offsets("to a topic that is not", group, topic="offsets-never")
    tx.commit_offsets("as a member that is not", group, member_id="m", generation_id=1)
    tx.commit_offsets("with a generation", group, generation_id=4)
    tx.commit_offsets("an earlier epoch", group, epoch=tx.epoch - 1)
    tx.commit_offsets("another producer", group, pid=tx.pid + 1_000)
    tx.commit_offsets("of a group that is not, with a generation", "offsets-never", generation_id=4)
    tx.commit_offsets("of no group", "")
    fetched(s, "while it is open", group)
    tx.end("commit it", True)
    wait_for(lambda: _is_stable(s, group), "the offsets to be stable")
    fetched(s, "after the commit", group)
    tx.commit_offsets("added by the broker", group, 5)
    tx.state("with the group")
    tx.end("abort it", False, 5)
    wait_for(lambda: _is_stable(s, group), "the offsets to be stable")
    fetched(s, "after the abort", group)


def _is_stable(s: Session, group: str) -> bool:
    topics = [{"name": "txn", "partition_indexes": [0]}]
    answer = s.quietly("OffsetFetch", 7, group_id=group, topics=topics, require_stable=True)
    return not answer.topics[0].partitions[0].error_code


@change
def transactions_listed(s: Session) -> None:
    tx = begin(s, "listed-a")
    tx.init("init")
    other = begin(s, "listed-b")
    other.init("init the other")
    other.add("begin", {"txn": [0]})
    began = time.time_ns() // 1_000_000

    def listed(step: str, version: int = 2, **values: Any) -> None:
        asked = {"state_filters": [], "producer_id_filters": [], **values}
        answer = s.quietly("ListTransactions", version, **asked)
        rows = sorted((row.transactional_id, row.transaction_state) for row in answer.transaction_states)
        ours = [list(row) for row in rows if row[0].startswith("listed-")]
        s.record(step, [answer.error_code, answer.unknown_state_filters, ours])

    listed("all")
    listed("v0", 0)
    listed("ongoing", state_filters=["Ongoing"])
    listed("a state that is not", state_filters=["Nowhere"])
    listed("one that is and one that is not", state_filters=["Empty", "Nowhere"])
    listed("by producer", producer_id_filters=[tx.pid])
    listed("for long", duration_filter=600_000)
    # Open for longer than no time: a fast broker has answered all of these within a millisecond.
    wait_for(lambda: time.time_ns() // 1_000_000 > began, "a millisecond", every=0.001)
    listed("for no time", duration_filter=0, state_filters=["Ongoing"])
    listed("by pattern", transactional_id_pattern="listed-[a]")
    listed("by half a pattern", transactional_id_pattern="listed")
    listed("by an empty pattern", transactional_id_pattern="")
    listed("by no pattern", transactional_id_pattern="listed-[")
    (row,) = s.quietly("DescribeTransactions", 0, transactional_ids=["listed-never"]).transaction_states
    s.record("describe what is not", [row.error_code, row.transaction_state])
    (row,) = s.quietly("DescribeTransactions", 0, transactional_ids=[""]).transaction_states
    s.record("describe the empty id", [row.error_code, row.transaction_state])
