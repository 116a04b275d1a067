"""What a stop may cancel: the wait for flushes of `kbroker.storage.manager.log_checkpoints`, not the flushes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker.config import BrokerConfig, LogConfig
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition
from tests.storage.batches import UNSYNCED_FILES, HandClock, append, batch


class Held(Executor):
    """Its threads are busy with something else."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, job: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, lambda: job(*args, **kwargs)))
        return future

    def run(self) -> None:
        for future, job in self.jobs:
            if future.set_running_or_notify_cancel():
                future.set_result(job())
        self.jobs.clear()


def test_a_stop_amid_the_wait_for_flushes_calls_none_of_them_off(tmp_path: Path) -> None:
    """The logs found a flush that was called off as they were closed: the stop was not in order, and the next start
    looked through all of them (KRaft seed 270)."""

    async def main() -> None:
        held = Held()
        config = BrokerConfig.from_mapping({"log.dirs": str(tmp_path)})
        manager = LogManager(config, HandClock(), UNSYNCED_FILES, held)
        manager.start("cluster")
        log = manager.get_or_create_log(TopicPartition("a", 0), bytes(range(16)), LogConfig())
        append(log, batch())
        log.committer = SimpleNamespace(durable_offset=1)  # type: ignore[assignment]
        waiting = asyncio.ensure_future(manager.checkpoints.move_recovery_points())
        while not log.local.is_flushing:
            await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        log.committer = None
        held.run()
        log.local.wait_for_flushes()
        assert log.recovery_point == 1
        manager.release()

    asyncio.run(main())
