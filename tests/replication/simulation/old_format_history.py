"""A history under a seed as `history` has it, of a partition whose records have an old format, and so no leader
epochs, or whose brokers speak an old protocol with each other.

A follower without epochs begins each leader epoch at its high watermark, which may lie before what is committed: until
it has fetched that again the cluster bears no other failure, which is why epochs came (KIP-101).  Nor does it with
answers of OffsetForLeaderEpoch 0, which do not say which epoch they are about (KIP-279).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbroker._fast.records.record_batch import MAGIC_V2
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.cluster.protocol_version import PROTOCOL_VERSIONS
from kbroker.records.batch import iterate_records
from kbroker.replication.partition import Partition, Role
from kbroker.storage.log.log_values import AppendOrigin, AppendResult, FetchIsolation
from kbroker.storage.log.message_set_validator import validate_records
from kbroker.storage.log.unified_log import UnifiedLog
from tests.replication.simulation.history import FAULTS, History, Scale
from tests.replication.simulation.node import SimNode
from tests.storage.batches import batch, region_bytes

# Pairs of inter-broker protocol and message format; a format newer than the protocol is refused at a start.
PAIRS = (
    ("0.8.2", "0.9.0"),
    ("0.10.2", "0.10.2"),
    ("0.11.0", "0.10.2"),
    ("0.11.0", "0.11.0"),
    ("1.1", "1.1"),
    ("2.0", "0.10.2"),
    ("2.6", "0.9.0"),
    ("2.7", "0.10.2"),
    ("2.8", "0.9.0"),
    ("3.9", "0.10.2"),
)
HARMLESS = ("restart", "heal", "slow")


class OldFormatHistory(History):
    def __init__(self, seed: int, directory: Path, scale: Scale) -> None:
        self.protocol, self.format = random.Random(f"{seed} formats").choice(PAIRS)
        super().__init__(seed, directory, scale)
        self._names_epochs = False

    def make_node(self, node_id: int, directory: Path, _release: str) -> SimNode:
        node = SimNode(node_id, directory, self.network, self.min_in_sync, self.protocol)
        node._config = replace(node._config, message_format_version=self.format)
        return node

    def append(self, node: SimNode, partition: Partition, value: bytes) -> AppendResult:
        log = partition.log
        analyzed = validate_records(batch([value]), log.config, node.clock.now_ms(), log_end_offset=log.log_end_offset)
        assert analyzed is not None
        return node.replicas.append(partition, analyzed.view, origin=AppendOrigin.CLIENT, analyzed=analyzed)

    def read(self, log: UnifiedLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        offset = log.log_start_offset if start is None else start
        while offset < log.log_end_offset:
            content = region_bytes(log.read(offset, 1 << 20, FetchIsolation.LOG_END, True))
            at = 0
            while at < len(content):
                info = read_stored_header(memoryview(content), at, check_crc=True)
                whole = content[at : at + info.size_in_bytes]
                found += [each for each in _records(info, whole) if each[0] >= offset]
                at += info.size_in_bytes
                offset = info.last_offset + 1
        return found

    def may_be_behind(self, partition: Partition) -> bool:
        return partition.log.config.message_magic < MAGIC_V2

    def faults(self) -> Sequence[str]:
        return FAULTS if self._bears_another() else HARMLESS

    def _bears_another(self) -> bool:
        image = self.controller.image("t")
        if any(self.controller.nodes[each].alive for each in self._down):
            return False
        up = [found for each in self.nodes.values() if (found := each.hosted()) is not None]
        # A fetch before version 9 names no leader epoch: whoever follows in an old one goes on with what it has.
        if any(each.leader_epoch != image.leader_epoch for each in up):
            return False
        known = max((*self.committed, *self.acknowledged), default=-1) + 1
        end = max([known, *(each.log.high_watermark for each in up)])
        in_sync = [self.nodes[each].hosted() for each in set(image.isr) - self._down]
        for each in in_sync:
            if each is None or each.leader_epoch != image.leader_epoch or each.log.log_end_offset < end:
                return False
        return all(each is not None and self._agrees(each) and self._knows_the_epoch(each) for each in in_sync)

    @staticmethod
    def _agrees(partition: Partition) -> bool:
        """Whether a replica has cut what it has to cut in this epoch."""
        has_epochs = partition.log.config.message_magic >= MAGIC_V2
        return has_epochs or partition.role is Role.LEADER or partition.agrees_in_epoch == partition.leader_epoch

    def _knows_the_epoch(self, partition: Partition) -> bool:
        """Whether a replica has seen the leader's epoch, if anything was written in that: an epoch that its leader
        alone knows is what answers without an epoch are wrong about."""
        if (
            PROTOCOL_VERSIONS[self.protocol].offset_for_leader_epoch != 0
            or partition.log.config.message_magic < MAGIC_V2
        ):
            return True
        leader = self.nodes[partition.leader_id].hosted() if partition.leader_id in self.nodes else None
        is_empty = leader is None or leader.log.log_end_offset == leader.epoch_start
        return is_empty or partition.log.latest_epoch == partition.leader_epoch


def _records(info: Any, whole: bytes) -> list[tuple[int, bytes | None]]:
    if info.magic >= MAGIC_V2:
        return [(each.offset, each.value) for each in iterate_records(whole)]
    # One message that is not compressed: what comes last is the value.
    at = 18 + 8 * info.magic
    key = int.from_bytes(whole[at : at + 4], signed=True)
    return [(info.base_offset, whole[at + 8 + max(0, key) :])]
