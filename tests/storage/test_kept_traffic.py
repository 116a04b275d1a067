"""What logs have counted stays when they go.

Also of `kbroker.storage.log.kept_traffic`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.storage.log import kept_traffic
from kbroker.storage.log.kept_traffic import NOTHING, KeptTraffic, added
from kbroker.types import TopicPartition
from tests.storage.batches import append, batch, open_log


def test_a_log_that_goes_leaves_what_it_counted(tmp_path: Path) -> None:
    """Rates over a topic would jump when one of its partitions moves away."""
    log = open_log(tmp_path / "topic-0")
    append(log, batch())
    kept = KeptTraffic()
    kept.keep(log)
    kept.keep(log)
    counted = log.counted()
    assert counted != NOTHING
    assert kept.total == kept.topics[log.topic_partition.topic] == added(counted, counted)
    log.close()


def test_topics_that_went_long_ago_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that come and go would fill the memory; the sum over all topics must not shrink with them."""
    monkeypatch.setattr(kept_traffic, "MOST_TOPICS", 2)
    kept = KeptTraffic()
    for number in range(4):
        log = open_log(tmp_path / f"t{number}-0", topic_partition=TopicPartition(f"t{number}", 0))
        append(log, batch())
        kept.keep(log)
        log.close()
    assert list(kept.topics) == ["t2", "t3"]
    messages_in, *_ = kept.total
    assert messages_in == 4 * log.counted()[0] > 0
