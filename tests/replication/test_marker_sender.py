"""Markers of transactions that go to other brokers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import encode_request
from kbroker.replication.marker_sender import MarkerSender
from kbroker.replication.transaction_markers import Marker
from kbroker.schemas import wire

HERE, THERE = 1, 2


class Elsewhere:
    """Another broker, which writes every marker."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, int]] = []

    def of(self, node_id: int) -> Elsewhere:
        assert node_id == THERE
        return self

    async def send(self, request: Any, version: int) -> Any:
        encode_request(ApiKey.WRITE_TXN_MARKERS, version, 0, "test", request)
        self.asked.append((request, version))
        response = wire.WriteTxnMarkersResponse
        return response(
            markers=[
                response.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        response.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                response.WritableTxnMarkerPartitionResult(partition_index=index)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


@pytest.mark.parametrize(("transaction_version", "version"), [(0, 1), (1, 1), (2, 2)])
def test_a_leader_elsewhere_learns_that_each_transaction_has_its_own_epoch(
    transaction_version: int, version: int
) -> None:
    """A marker that comes a second time, late, would end the next transaction of its producer; a broker of Kafka 3.9
    would refuse a version that it lacks."""
    elsewhere = Elsewhere()
    topic = SimpleNamespace(partitions=[SimpleNamespace(leader=THERE)])
    cache = SimpleNamespace(topic=lambda _name: topic)
    settled: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        sender = MarkerSender(loop, HERE, cast("Any", None), cast("Any", cache), cast("Any", elsewhere))
        sender.write("t", 0, Marker(7, 3, True, 0, transaction_version), settled.append)
        while not settled:
            await asyncio.sleep(0)

    asyncio.run(main())
    ((request, used),) = elsewhere.asked
    assert used == version
    assert request.markers[0].transaction_version == (transaction_version if version > 1 else 0)
    assert settled == [None]
