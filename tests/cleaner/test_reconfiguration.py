"""Settings of the pool of cleaners that change while it works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbroker.config import BrokerConfig
from kbroker.storage.cleaner.cleaner import Cleaner
from kbroker.types import TopicPartition
from tests.cleaner.brokerless import Brokerless, fill
from tests.cleaner.logs import records_of


def test_more_threads_take_over_a_backlog_under_way(tmp_path: Path) -> None:
    """An operator who adds threads to catch up would wait for the very backlog that they were meant for."""
    broker = Brokerless(tmp_path)
    logs = [broker.log(TopicPartition("events", at)) for at in range(8)]
    for log in logs:
        fill(log, 20)
    cleaner = broker.cleaner
    most = 0
    in_thread = cleaner._in_thread

    def count(job: Callable[[], Any]) -> Any:
        nonlocal most
        most = max(most, len(cleaner._tickets))
        if cleaner.totals.cleans == 1 and cleaner.settings.threads == 1:
            more = BrokerConfig.from_mapping({"log.cleaner.threads": "2", "log.dirs": str(tmp_path)})
            cleaner.check(more)
            cleaner.reconfigure(more)
        return in_thread(job)

    cleaner._in_thread = count  # type: ignore[method-assign]
    asyncio.run(cleaner.run())
    assert most == 2
    assert all(len(records_of(log)) < 20 * 5 for log in logs)
    assert cleaner.totals.cleans >= 8
    broker.manager.shutdown()


def test_a_larger_map_serves_the_rest_of_a_log(tmp_path: Path, monkeypatch: Any) -> None:
    """A log with many keys would be read again and again with the map that was found too small."""
    broker = Brokerless(tmp_path)
    cleaner = broker.cleaner
    cleaner.settings = cleaner.settings._replace(dedupe_bytes=24 * 3)
    log = broker.log()
    fill(log, 30, keys=9)
    sizes: list[int] = []
    made = Cleaner.__init__

    def watch(self: Cleaner, files: Any, dedupe_bytes: int, *others: Any) -> None:
        sizes.append(dedupe_bytes)
        made(self, files, dedupe_bytes, *others)
        cleaner.reconfigure(BrokerConfig.from_mapping({"log.dirs": str(tmp_path)}))

    monkeypatch.setattr(Cleaner, "__init__", watch)
    asyncio.run(cleaner.run())
    assert sizes == [72, 128 << 20]
    assert cleaner.first_dirty_offset(log) == log.local.segments.active.base_offset
    broker.manager.shutdown()
