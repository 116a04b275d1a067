"""A partition with a transaction that nobody ends, as a copied directory may bring one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.broker.client import Client
from tests.broker_process import BrokerProcess
from tests.scenarios.batches import Batch, Pair

TRANSACTIONAL = 1 << 4
PRODUCER_ID = 7_000
FIRST_SEGMENT = f"{0:020d}.log"


def leave_open(broker: BrokerProcess, partition: str, offset: int, pairs: Sequence[Pair], producer_id: int) -> None:
    """Put a batch of an open transaction at the end of a stopped broker's log; its next start recovers it."""
    batch = Batch(
        pairs,
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=0,
        attributes=TRANSACTIONAL,
        base_offset=offset,
    )
    with (broker.data_dir / partition / FIRST_SEGMENT).open("ab") as log:
        log.write(batch.encoded())
    (broker.data_dir / ".kafka_cleanshutdown").unlink()


def end_transactions(client: Client, topic: str, producer_id: int, *, commit: bool = False) -> Any:
    """WriteTxnMarkers for partition 0; its error code."""
    marker = {
        "producer_id": producer_id,
        "producer_epoch": 3,
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    return client.ask("WriteTxnMarkers", 1, {"markers": [marker]}).markers[0].topics[0].partitions[0].error_code
