"""Model producers: what they may send, so that a refusal is the broker's fault."""

from __future__ import annotations

import asyncio
import math
import random
import struct
from collections import deque
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from kbroker.error_codes import ErrorCode
from tests.simulation.judge import Judge
from tests.simulation.producers import Producer
from tests.simulation.replication_witness import Witness
from tests.simulation.topics import Topic

REMEMBERED = 5
"""So many batches brokers know of a producer in a partition, like Apache Kafka's."""


class Evenly(random.Random):
    """Draws that are all the same: no batch that is known to be there is sent again, nothing is aborted."""

    def random(self) -> float:
        return 0.9


class Leader:
    """Stores batches of one partition in the order of their sequence, and knows the last ones again."""

    def __init__(self) -> None:
        self.end = 0
        self.batches = 0
        self._known: deque[int] = deque(maxlen=REMEMBERED)

    def append(self, data: bytes) -> ErrorCode:
        sequence, count = struct.unpack(">ii", data[53:61])
        if sequence in self._known:
            return ErrorCode.NONE
        if sequence != self.end:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._known.append(sequence)
        self.batches += 1
        self.end += count
        return ErrorCode.NONE


class Line:
    """A connection to the leader, which stores all that comes; `late` says which answers come before the commit, and
    the connection is gone behind the last of them."""

    def __init__(self, leader: Leader, late: Iterable[bool]) -> None:
        self.name, self.node, self.gone = "p.1", 1, False
        self.end = SimpleNamespace(closed=False, paused=False)
        self.outstanding: deque[tuple[Any, ErrorCode, Any]] = deque()
        self._leader, self._late = leader, deque(late)

    def ask(self, request: Any, _version: int, take: Any, **_: Any) -> None:
        row = request.topic_data[0].partition_data[0]
        self.outstanding.append((row, self._leader.append(row.records), take))

    async def change(self) -> None:
        row, code, take = self.outstanding.popleft()
        late = self._late.popleft()
        if late and code == ErrorCode.NONE:
            code = ErrorCode.REQUEST_TIMED_OUT
        base = struct.unpack(">i", row.records[53:57])[0]
        answer = SimpleNamespace(index=row.index, error_code=code, base_offset=base)
        take(SimpleNamespace(responses=[SimpleNamespace(name="t", partition_responses=[answer])]))
        if not self._late:
            self.abort()

    def flush(self) -> None:
        """All of it is there already."""

    def abort(self) -> None:
        self.gone = True

    def finish(self, _rng: random.Random) -> None:
        self.gone = True


def idempotent_producer(requests: int) -> Producer:
    """One that keeps five batches for one partition under way."""
    world: Any = SimpleNamespace(
        rng=random.Random(1),
        judge=Judge(lambda: 0.0),
        scale=SimpleNamespace(acks=(-1,), aborts=0.0),
        loop=SimpleNamespace(time=lambda: 0.0),
        topics={"t": Topic("t", b"", 1)},
        timeouts_ms=(100,),
        stopped_at=-math.inf,
        forgets_after=math.inf,
        witness=Witness(),
        may_lose_leaders=False,
        may_lead_twice=False,
        is_crowd=True,
        is_large=False,
        has_zstd=False,
        has_topic_ids=False,
        keeps_order=True,
        next_value=lambda _: b"v%d" % next(numbers),
        now_ms=lambda: 0,
        tolerates=lambda code, _: code == ErrorCode.REQUEST_TIMED_OUT,
    )
    numbers = iter(range(1000))
    producer = Producer(world, "p", requests)
    producer.rng = Evenly()
    producer.idempotent, producer.producer = True, (1, 0)
    producer.depth, producer.several, producer.codec, producer.pad, producer.version = 5, False, 0, 0, 9
    producer._here = [("t", 0)]
    return producer


def test_a_batch_in_doubt_is_sent_again_while_brokers_know_it() -> None:
    """A broker would be blamed for not knowing a batch that lies six back, where those between were acknowledged."""
    producer, leader = idempotent_producer(6), Leader()
    for late in ((True, False), (True,) * 5, (False,) * 10):
        asyncio.run(producer._talk(Line(leader, late)))  # type: ignore[arg-type]
    assert not producer._unsettled
    assert (producer.requests, leader.batches) == (0, 6)
