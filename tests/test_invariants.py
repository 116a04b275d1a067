"""Invariants that the debug build asserts with each change: that there are some where state is held, and that they see
what is wrong.

Tests: `kbroker._fast.base.build_facts` (`CHECKED`), and `check_invariants` of the classes below.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kbroker
from kbroker._fast.base.build_facts import CHECKED
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
from kbroker.coordinator.transactions.transaction_state import TransactionState
from kbroker.metadata.image import PartitionImage
from kbroker.replication.follower import Follower
from kbroker.replication.partition import Partition
from kbroker.types import TopicPartition
from tests.storage.batches import append, batch, open_log

PACKAGE = Path(kbroker.__file__).parent
# What holds state of a log, a partition, a connection, a group or a transaction.
PYTHON_CLASSES = {
    "coordinator/classic/group.py": "Group",
    "coordinator/classic/offsets.py": "OffsetTable",
    "coordinator/consumer/group.py": "ConsumerGroup",
    "coordinator/modern/group.py": "ModernGroup",
    "coordinator/runtime/shard.py": "Shard",
    "coordinator/share/group.py": "ShareGroup",
    "coordinator/streams/group.py": "StreamsGroup",
    "coordinator/transactions/transaction_metadata.py": "TransactionMetadata",
    "coordinator/transactions/transaction_partition.py": "TransactionPartition",
    "replication/delayed_fetch.py": "FetchPurgatory",
    "replication/fetch_session.py": "FetchSessionCache",
    "replication/isr_manager.py": "IsrManager",
    "replication/partition.py": "Partition",
    "replication/replica_roles.py": "ReplicaRoles",
    "replication/share/share_partition.py": "SharePartition",
    "storage/log/group_commit.py": "LogCommitter",
    "storage/log/indexes.py": "IndexFile",
    "storage/log/leader_epoch_cache.py": "LeaderEpochCache",
    "storage/log/local_log.py": "LocalLog",
    "storage/log/log_segment.py": "LogSegment",
    "storage/log/producer_state.py": "ProducerState",
}
C_SOURCES = (
    "log/append_group.pyx",
    "log/append_steps.pyx",
    "log/log_fields.pxd",
    "log/producer_table.pyx",
    "log/replica_fields.pyx",
    "net/answer_queue.pyx",
    "net/connection.pyx",
    "net/frame_reader.pyx",
    "net/pending.pyx",
    "net/receive_buffer.pyx",
    "net/request_server.pyx",
)


@pytest.mark.parametrize(("path", "name"), PYTHON_CLASSES.items(), ids=PYTHON_CLASSES.values())
def test_a_class_that_holds_state_asserts_its_invariants(path: str, name: str) -> None:
    """A state that cannot be would be met far from where it came to be."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    asserts = [node for node in ast.walk(found) if isinstance(node, ast.Assert)]
    asked = [node for node in ast.walk(found) if isinstance(node, ast.Name) and node.id == "CHECKED"]
    assert len(asserts) >= 2
    inherits = name in ("ConsumerGroup", "ShareGroup", "StreamsGroup")
    is_cold = name == "ReplicaRoles"  # A look-up with each change of a role, in every build.
    assert asked or inherits or is_cold, "the asserts are never looked at"


@pytest.mark.parametrize("path", C_SOURCES)
def test_c_asserts_its_invariants_in_the_debug_build_alone(path: str) -> None:
    """As above; and a release would spend time on them."""
    source = (PACKAGE / "_fast" / path).read_text(encoding="utf-8")
    assert "checked cimport CHECKED" in source
    # A table of states is a few instructions, and looked at in every build.
    states = len(re.findall(r"^\s+assert may_", source, re.MULTILINE))
    blocks = re.findall(r"^( +)if CHECKED\b.*:\n((?:\1 .*\n)+)", source, re.MULTILINE)
    checked = "".join(body for _, body in blocks)
    own = re.search(r"    cdef int _check\(self\).*?\n(?=\n    (?:cdef|def|# --)|\Z)", source, re.DOTALL)
    inside = checked.count("assert ") + (own.group(0).count("assert ") if own else 0)
    in_debug_build = inside + checked.count("check_invariants()")
    assert in_debug_build >= 1
    assert in_debug_build + states >= 2
    assert len(re.findall(r"^\s+assert ", source, re.MULTILINE)) == states + inside


def test_a_log_whose_offsets_are_out_of_order_is_noticed(tmp_path: Path) -> None:
    """A consumer could be given records that are not committed."""
    log = open_log(tmp_path / "log")
    append(log, batch([b"one", b"two"]))
    log.check_invariants()
    log.high_watermark = 3
    with pytest.raises(AssertionError, match="high 3, end 2"):
        log.check_invariants()


def test_a_partition_with_an_impossible_state_is_noticed(tmp_path: Path) -> None:
    """A follower would commit by itself."""
    purgatory: Any = SimpleNamespace(mark=lambda partition: None)
    image = PartitionImage(0, 1, 0, (1, 2), (1,))
    partition = Partition("topic", 0, bytes(16), open_log(tmp_path / "log"), 1, image, purgatory)
    partition.check_invariants()
    partition.followers[1] = Follower()
    with pytest.raises(AssertionError):
        partition.check_invariants()


def test_a_group_without_its_leader_is_noticed() -> None:
    """No member would be asked for an assignment."""
    group = Group("group", 0, 0)
    group.check_invariants()
    group.leader_id = "nobody"
    with pytest.raises(AssertionError, match="nobody"):
        group.check_invariants()


def test_a_transaction_that_is_over_and_has_partitions_is_noticed() -> None:
    """Markers would be written for it again."""
    metadata = TransactionMetadata("id", 7, 0, 60_000, TransactionState.EMPTY, 0)
    metadata.check_invariants()
    with pytest.raises(AssertionError):
        TransactionMetadata(
            "id", 7, 0, 60_000, TransactionState.COMPLETE_COMMIT, 0, frozenset({TopicPartition("topic", 0)})
        ).check_invariants()


@pytest.mark.skipif(not CHECKED, reason="a release build asserts nothing of this")
def test_the_debug_build_looks_with_each_change(tmp_path: Path) -> None:
    """The asserts would be there and never run."""
    log = open_log(tmp_path / "log")
    append(log, batch([b"one", b"two"]))
    log.high_watermark, log.log_start_offset = 0, 2
    with pytest.raises(AssertionError, match="start 2"):
        log.maybe_increment_high_watermark(1)
