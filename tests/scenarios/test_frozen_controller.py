"""A controller that stands still amid a swap of all replicas, of kbroker and of Apache Kafka: see `faults/swap.py`; and
what passes between brokers, as it is recorded there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import encode_request
from kbroker.schemas import wire
from tests.scenarios.faults.cluster import KINDS
from tests.scenarios.faults.recorder import Recorder
from tests.scenarios.faults.swap import Moment, swap


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["kbroker", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_a_controller_that_stands_still_amid_a_swap_leaves_no_replica_behind(tmp_path: Path, kind: str) -> None:
    """Moves would stand still, or brokers go on as leaders of what is others' by now, with records that are lost."""
    with swap(tmp_path, KINDS[kind]) as run:
        for moment in Moment:
            print(asdict(run.round(moment)))
        print(run.judge())
    assert run.wrong == []


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_what_passes_is_recorded_in_pieces_of_any_size(chunk: int) -> None:
    """The judge would miss what a broker that is deposed asks for."""
    recorder = Recorder({ApiKey.ALTER_PARTITION})
    sent, came = recorder.taps(2)

    def feed(tap: Any, data: bytes) -> None:
        for at in range(0, len(data), chunk):
            tap(data[at : at + chunk])

    asked = wire.AlterPartitionRequest(broker_id=3, broker_epoch=5, topics=[])
    other = encode_request(ApiKey.METADATA, 12, 8, "1", wire.MetadataRequest(topics=None))
    feed(sent, other + encode_request(ApiKey.ALTER_PARTITION, 2, 9, "1", asked) + other)
    body = wire.AlterPartitionResponse(error_code=41, topics=[])
    answer = b"\0\0\0\x09\0" + bytes(type(body).program(2).encode(body))
    unasked = b"\0\0\0\x08\0\0\0"
    feed(came, b"".join(len(each).to_bytes(4, "big") + each for each in (unasked, answer, unasked)))
    (found,) = recorder.since(0.0)
    assert (found.to, found.request.broker_id, found.answer.error_code) == (2, 3, 41)
