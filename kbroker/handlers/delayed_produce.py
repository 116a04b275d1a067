"""A produce answer that waits until what it acknowledges is committed (`Partition`).

The connection is muted meanwhile; the request's bytes are not held.  A partition that cannot commit its batch answers
with that error, the others with what they have.  When the request's `timeout_ms` is over, those that still wait answer
REQUEST_TIMED_OUT: their records are in the log and may be committed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.net.pending import Pending
from kbroker.errors import RequestTimedOutError

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.errors import KafkaError
    from kbroker.replication.partition import Partition
    from kbroker.schemas import wire

    PartitionProduceResponse = wire.ProduceResponse.PartitionProduceResponse

NO_OFFSET = -1
NO_TIMESTAMP = -1


class Unacknowledged(NamedTuple):
    """A partition's answer, and the batch that it waits for."""

    partition: Partition
    last_offset: int
    answer: PartitionProduceResponse


class DelayedProduce(Pending):
    """One answer for several partitions; given when each is settled, or the time is up.  `by_all`: acks=all.

    Several batches of one partition are settled by the last of them, as in Kafka.
    """

    def __init__(self, response: Struct, waits: Sequence[Unacknowledged], by_all: bool, timeout_ms: int) -> None:
        self._response = response
        self._by_all = by_all
        self._timeout_ms = max(0, timeout_ms)
        self._last: dict[Partition, int] = {}
        self._left: dict[Partition, list[PartitionProduceResponse]] = {}
        for partition, last_offset, answer in waits:
            self._last[partition] = max(last_offset, self._last.get(partition, last_offset))
            self._left.setdefault(partition, []).append(answer)

    def started(self) -> None:
        for partition, last_offset in self._last.items():
            partition.wait(last_offset, self._by_all, partial(self._settled, partition))
        if not self.done:
            self.expire_after(self.ctx.services.loop, self._timeout_ms)

    def expired(self) -> None:
        for answers in self._left.values():
            for answer in answers:
                _fail(answer, RequestTimedOutError())
        self._left.clear()
        self.answer(self._response)

    def _settled(self, partition: Partition, error: KafkaError | None) -> None:
        """A partition is through; what comes after the deadline finds nothing that waits."""
        answers = self._left.pop(partition, None)
        if answers is None:
            return
        if error is not None:
            for answer in answers:
                _fail(answer, error)
        if not self._left:
            self.answer(self._response)


def _fail(answer: PartitionProduceResponse, error: KafkaError) -> None:
    answer.error_code = error.code
    if not error.leaves_stored:
        answer.base_offset = answer.log_start_offset = NO_OFFSET
        answer.log_append_time_ms = NO_TIMESTAMP
