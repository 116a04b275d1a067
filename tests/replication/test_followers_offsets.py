"""What a follower says of its log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kbroker.errors import NotLeaderOrFollowerError
from kbroker.handlers.records.log_offsets import handle_list_offsets
from kbroker.metadata.image import PartitionImage
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.partition import Partition
from kbroker.schemas import wire
from tests.storage.batches import batch, open_log

LEADER, OURS = 1, 2
CONSUMER, TOOL, BROKER = -1, -2, 3
NOT_LEADER = 6


class _NoPace:
    def __await__(self) -> Iterator[None]:
        return iter(())


@pytest.mark.parametrize("version", [0, 1, 9])
@pytest.mark.parametrize(("replica_id", "code"), [(TOOL, 0), (CONSUMER, NOT_LEADER), (BROKER, NOT_LEADER)])
def test_a_tool_that_compares_replicas_learns_where_a_followers_log_ends(
    replica_id: int, code: int, version: int, tmp_path: Path
) -> None:
    """Kafka's tools that check replicas would find none but the leader's."""

    async def scenario() -> None:
        log = open_log(tmp_path)
        log.append_as_leader(batch([b"one", b"two"]), 0)
        log.maybe_increment_high_watermark(1)
        image = PartitionImage(0, LEADER, 0, (LEADER, OURS), (LEADER, OURS))
        partition = Partition("t", 0, b"1" * 16, log, OURS, image, FetchPurgatory(asyncio.get_running_loop()))

        def led(*_: Any) -> Partition:
            raise NotLeaderOrFollowerError

        services = SimpleNamespace(
            replica_manager=SimpleNamespace(partition=led, replica=lambda *_: partition),
            slices=SimpleNamespace(pace=_NoPace),
            clock=SimpleNamespace(now_ms=lambda: 0),
        )
        ctx: Any = SimpleNamespace(services=services, api_version=version, gate=None)
        asked = wire.ListOffsetsRequest
        row = asked.ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=1)
        request = asked(replica_id=replica_id, topics=[asked.ListOffsetsTopic(name="t", partitions=[row])])
        answer: Any = await handle_list_offsets(ctx, request)
        (found,) = answer.topics[0].partitions
        assert found.error_code == code
        if code == 0:
            assert (found.old_style_offsets[0] if version == 0 else found.offset) == log.log_end_offset == 2

    uvloop.run(scenario())
