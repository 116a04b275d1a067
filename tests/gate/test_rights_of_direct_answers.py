"""Requests that are answered from their bytes, by the rights of their client.

Of `kbroker._fast.gate.gate`, `kbroker._fast.requests.fast_produce`, `kbroker._fast.requests.fast_fetch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker._fast.gate.gate import Gate, Gatekeeper
from kbroker.handlers.records.fetch import FAST_FETCH as FETCH
from kbroker.handlers.records.produce import FAST_PRODUCE as PRODUCE
from kbroker.security.authorizer import Operation, ResourceKind
from tests.extensions.direct_requests import answer_together, ask
from tests.handlers.both_ways import FETCH_VERSIONS, ID, NAME, PRODUCE_VERSIONS, ProduceRequest, Side, encoded, fetch
from tests.storage.batches import batch


class Rights(Gate):
    """A gate of a client with an authorizer, which notes what it asks it."""

    def __init__(self, keeper: Gatekeeper) -> None:
        super().__init__(None, True, keeper)
        self.allowed: set[tuple[int, str]] = set()
        self.asked: list[tuple[int, int, str]] = []

    def is_authorized(self, operation: int, kind: int, name: str) -> bool:
        self.asked.append((operation, kind, name))
        return (operation, name) in self.allowed


@pytest.fixture(name="side")
def _side(tmp_path: Path) -> Iterator[Side]:
    side = Side(tmp_path)
    yield side
    side.log.close(clean=False)


def produce(version: int, **values: object) -> bytearray:
    rows = [ProduceRequest.PartitionProduceData(index=3, records=bytes(batch([b"x"])))]
    topic = ProduceRequest.TopicProduceData(name=NAME, topic_id=ID, partition_data=rows)
    return encoded(ProduceRequest(acks=1, timeout_ms=9, topic_data=[topic], **values), version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_batch_goes_only_where_its_client_may_write(side: Side, version: int) -> None:
    """Records would be in a topic of somebody else."""
    keeper = Gatekeeper()
    gate = Rights(keeper)
    end = side.log.log_end_offset
    for _ in range(2):
        assert ask(PRODUCE, side.services, version, 7, produce(version), gate) is None
        assert answer_together(PRODUCE, side.services, [(version, 7, produce(version))] * 2, gate=gate) == [None] * 2
    assert side.log.log_end_offset == end
    assert set(gate.asked) == {(Operation.WRITE, ResourceKind.TOPIC, NAME)}
    gate.allowed.add((Operation.WRITE, NAME))
    assert ask(PRODUCE, side.services, version, 7, produce(version), gate) is not None
    assert None not in answer_together(PRODUCE, side.services, [(version, 7, produce(version))] * 2, gate=gate)
    assert side.log.log_end_offset == end + 3


def test_a_right_is_asked_for_once_until_rights_change(side: Side) -> None:
    """Each request would pay for the rules, or a right that was taken away would last as long as the connection."""
    keeper = Gatekeeper()
    gate = Rights(keeper)
    gate.allowed = {(Operation.WRITE, NAME), (Operation.READ, NAME)}
    for _ in range(5):
        assert ask(PRODUCE, side.services, 9, 7, produce(9), gate) is not None
        assert ask(FETCH, side.services, 12, 7, fetch(12, 0), gate) is not None
    assert len(gate.asked) == 2
    gate.allowed.clear()
    keeper.renew()
    assert ask(PRODUCE, side.services, 9, 7, produce(9), gate) is None
    assert ask(FETCH, side.services, 12, 7, fetch(12, 0), gate) is None


@pytest.mark.parametrize("version", [9, 12])
def test_a_transactional_batch_is_left_to_the_handler(side: Side, version: int) -> None:
    """It needs a right to its transactional id, too."""
    gate = Rights(Gatekeeper())
    gate.allowed = {(Operation.WRITE, NAME)}
    request = produce(version, transactional_id="id")
    assert ask(PRODUCE, side.services, version, 7, request, gate) is None
    assert answer_together(PRODUCE, side.services, [(version, 7, request)], gate=gate) == [None]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_shows_only_what_its_client_may_read(side: Side, version: int) -> None:
    """A client would read records of somebody else."""
    gate = Rights(Gatekeeper())
    assert ask(FETCH, side.services, version, 7, fetch(version, 0), gate) is None
    assert gate.asked == [(Operation.READ, ResourceKind.TOPIC, NAME)]
    gate.allowed = {(Operation.READ, NAME)}
    assert ask(FETCH, side.services, version, 7, fetch(version, 0), gate) is not None


def test_a_gate_without_an_authorizer_asks_for_nothing(side: Side) -> None:
    """A client with a quota alone would be refused."""
    gate = Gate()
    assert ask(PRODUCE, side.services, 9, 7, produce(9, transactional_id="id"), gate) is not None
    assert ask(PRODUCE, side.services, 9, 7, produce(9), gate) is not None
    assert ask(FETCH, side.services, 12, 7, fetch(12, 0), gate) is not None
