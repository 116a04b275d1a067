"""A copy of a partition that was on the move, when its topic was deleted while the broker was away."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from kbroker.errors import KafkaError
from kbroker.storage.files.filesystem import Buffer
from kbroker.storage.log.partition_metadata import PARTITION_METADATA
from tests.storage.batches import UnsyncedFiles
from tests.storage.moves import PART_BYTES, TOPIC_ID, TP, HeldThrottle, Storage, fill, names


@pytest.mark.parametrize("says_its_topic", [True, False])
def test_a_copy_of_a_deleted_topic_goes_when_another_has_its_name(tmp_path: Path, says_its_topic: bool) -> None:
    """It would be taken for a copy of the new topic's partition, which was not asked to move, and stay for good."""

    async def begin() -> None:
        storage = Storage(tmp_path)
        moves = storage.lead()
        fill(storage, 150)
        moves._throttle = HeldThrottle(PART_BYTES)
        moves.alter(TP, storage.b)
        future = storage.logs.plans.futures[TP]
        while not future.copied_bytes:
            await asyncio.sleep(0.001)
        await moves.stop()
        storage.logs.release()
        if not says_its_topic:
            os.unlink(f"{future.directory}/{PARTITION_METADATA}")

    asyncio.run(begin())
    storage = Storage(tmp_path, topic_id=bytes(reversed(TOPIC_ID)))
    assert not storage.logs.plans.found
    assert [name.rpartition("-")[2] for name in names(storage)[storage.b]] == ["delete"]
    storage.logs.shutdown()


def test_a_copy_that_cannot_say_its_topic_is_not_begun(tmp_path: Path) -> None:
    """An empty copy would stay in a directory without space, and the move that failed go on with the next start."""

    class Full(UnsyncedFiles):
        def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
            if "-future" in path:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            super().write_atomic(path, data, sync=sync)

    async def run() -> None:
        storage = Storage(tmp_path, Full())
        moves = storage.lead()
        with pytest.raises(KafkaError, match="creating a copy"):
            moves.alter(TP, storage.b)
        assert not storage.logs.plans.futures and names(storage)[storage.b] == []
        await moves.stop()
        storage.logs.shutdown()

    asyncio.run(run())
