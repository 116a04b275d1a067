"""A broker whose partition has seen two leader epochs: 0 up to offset 2, and 5 from there on."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.broker.client import Batch, Client
from tests.broker_process import BrokerProcess
from tests.scenarios.batches import T0

SECOND_EPOCH = 5


@dataclass(frozen=True, slots=True)
class Aged:
    """Records 0 and 1 (at T0 and T0 + 10) were written in epoch 0, record 2 (at T0 + 20) in epoch 5."""

    broker: BrokerProcess
    topic: str


@pytest.fixture(scope="module")
def aged(module_broker: BrokerProcess) -> Iterator[Aged]:
    """One node elects itself once; that a new leader took over is written into its metadata while it is down."""
    with Client(module_broker.port) as client:
        client.create("aged")
        client.write("aged", Batch(timestamps=[T0]), Batch(timestamps=[T0 + 10]))
    module_broker.stop()
    with contextlib.closing(sqlite3.connect(module_broker.data_dir / "kbroker-metadata.sqlite")) as store, store:
        store.execute(
            "UPDATE partitions SET leader_epoch = ? WHERE topic_id = (SELECT topic_id FROM topics WHERE name = ?)",
            (SECOND_EPOCH, "aged"),
        )
    module_broker.start()
    with Client(module_broker.port) as client:
        client.write("aged", Batch(timestamps=[T0 + 20]))
    yield Aged(module_broker, "aged")
