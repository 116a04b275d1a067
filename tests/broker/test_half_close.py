"""A client that ends its own direction of the connection: what it has asked for is answered, in order, as by Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.client import Batch, Client, fetch_values, produce_values
from tests.broker_process import BrokerProcess

TIMES = 20


@pytest.mark.parametrize("fsync", ["os", "commit"])
def test_a_half_closed_client_gets_every_answer(tmp_path: Path, fsync: str) -> None:
    """A producer or a group that says that it is done would not learn what is stored."""
    with BrokerProcess(tmp_path / fsync, {"kbroker.fsync": fsync}) as broker:
        with Client(broker.port) as client:
            client.create("half")
        for time in range(TIMES):
            with Client(broker.port) as client:
                client.send("Metadata", 9, {"topics": [{"name": "half"}]})
                # More than there is: it waits for its time.
                client.send("Fetch", 11, fetch_values("half", wait_ms=20, min_bytes=1 << 20))
                client.send("Produce", 9, produce_values("half", Batch(), acks=-1))
                client.send("OffsetCommit", 7, commit(time))
                client.half_close()
                assert answer(client, 1, "Metadata", 9).topics[0].error_code == 0
                assert answer(client, 2, "Fetch", 11).responses[0].partitions[0].error_code == 0
                produced = answer(client, 3, "Produce", 9).responses[0].partition_responses[0]
                assert (produced.error_code, produced.base_offset) == (0, time)
                assert answer(client, 4, "OffsetCommit", 7).topics[0].partitions[0].error_code == 0
                assert client.hung_up()


def answer(client: Client, number: int, api: str, version: int) -> Any:
    """The answer to the request that was sent as the `number`th."""
    client._correlation_id = number
    return client.answer(api, version)


def commit(offset: int) -> dict[str, object]:
    """An OffsetCommit of a consumer without a group's membership."""
    rows = [{"partition_index": 0, "committed_offset": offset}]
    return {
        "group_id": "half",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "half", "partitions": rows}],
    }
