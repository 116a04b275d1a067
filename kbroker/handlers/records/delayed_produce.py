"""A produce answer that waits until what it acknowledges is committed (`CommitWait`).

The connection is muted meanwhile; the request's bytes are not held.  A partition that cannot commit its batch answers
with that error, the others with what they have.  When the request's `timeout_ms` is over, those that still wait answer
REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kbroker.replication.commit_wait import CommitWait
from kbroker.types import NO_OFFSET, NO_TIMESTAMP, Offset

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.errors import KafkaError
    from kbroker.replication.partition import Partition
    from kbroker.schemas import wire

    PartitionProduceResponse = wire.ProduceResponse.PartitionProduceResponse


class Unacknowledged(NamedTuple):
    """A partition's answer, and the batch that it waits for."""

    partition: Partition
    last_offset: Offset
    answer: PartitionProduceResponse


def answer_when_acknowledged(
    response: Struct, waits: Sequence[Unacknowledged], *, by_all: bool, timeout_ms: int
) -> CommitWait:
    """One answer for several partitions; given when each is settled, or the time is up.  `by_all`: acks=all.

    Several batches of one partition are settled by the last of them, as in Kafka.
    """
    last: dict[Partition, Offset] = {}
    answers: dict[Partition, list[PartitionProduceResponse]] = {}
    for partition, last_offset, answer in waits:
        last[partition] = max(last_offset, last.get(partition, last_offset))
        answers.setdefault(partition, []).append(answer)
    wait = CommitWait(waits[0].partition.purgatory.produces)
    for partition, last_offset in last.items():
        partition.wait(last_offset, by_all, wait.expect(partial(_settled, answers[partition])))
    return wait.answer_within(timeout_ms, lambda: response)


def _settled(answers: Sequence[PartitionProduceResponse], error: KafkaError | None) -> None:
    if error is None:
        return
    for answer in answers:
        answer.error_code = error.code
        if not error.leaves_stored:
            answer.base_offset = answer.log_start_offset = NO_OFFSET
            answer.log_append_time_ms = NO_TIMESTAMP
