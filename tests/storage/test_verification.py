"""Guards of transactions that are verified before their first append (KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, LogConfig
from kbroker.errors import InvalidProducerEpochError, InvalidTxnStateError, OutOfOrderSequenceNumberError
from kbroker.storage.log.log_values import AppendOrigin, AppendResult
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.log.verification import NO_GUARD, VerificationGuard
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.storage.batches import START_MS, UNSYNCED_FILES, HandClock, append, batch, environment, marker, open_log

SETTING = "transaction.partition.verification.enable"
COORDINATOR = AppendOrigin.COORDINATOR


@pytest.fixture
def log(tmp_path: Path) -> UnifiedLog:
    env = environment(clock=HandClock())
    env.verifies = True
    return open_log(tmp_path, env=env)


def write(log: UnifiedLog, sequence: int, guard: VerificationGuard = NO_GUARD, *, epoch: int = 0) -> AppendResult:
    data = batch(producer_id=7, epoch=epoch, sequence=sequence, transactional=True)
    result = log.append_as_leader(data, 0, guard=guard)
    log.maybe_increment_high_watermark(log.log_end_offset)
    return result


def start(log: UnifiedLog, sequence: int = 0, *, epoch: int = 0, v2: bool = False) -> VerificationGuard:
    return log.maybe_start_transaction_verification(7, sequence, epoch, supports_epoch_bump=v2)


def test_transaction_begins_with_its_guard_alone(log: UnifiedLog) -> None:
    """Records of a transaction that nobody will end would block all readers of committed records for good."""
    for guard in (NO_GUARD, VerificationGuard()):
        with pytest.raises(InvalidTxnStateError, match="Record was not part of an ongoing transaction"):
            write(log, 0, guard)
    guard = start(log)
    assert guard is start(log), "requests that wait for the same word share a guard"
    with pytest.raises(InvalidTxnStateError):
        write(log, 0)
    write(log, 0, guard)
    assert start(log, 1) is NO_GUARD, "the transaction is open: nothing to ask"
    write(log, 1)
    assert log.last_stable_offset == 0


def test_marker_takes_the_guard_away(log: UnifiedLog) -> None:
    """A batch that was verified before the abort would open a transaction after it, which nobody ends."""
    guard = start(log)
    append(log, marker(7, 0, abort=True), origin=COORDINATOR)
    with pytest.raises(InvalidTxnStateError):
        write(log, 0, guard)
    later = start(log)
    assert later is not guard
    with pytest.raises(InvalidTxnStateError):
        write(log, 0, guard)
    write(log, 0, later)
    append(log, marker(7, 0, abort=False), origin=COORDINATOR)
    with pytest.raises(InvalidTxnStateError):
        write(log, 1, later)


def test_marker_of_the_epoch_that_is_verified_leaves_its_guard(log: UnifiedLog) -> None:
    """With an epoch for each transaction, the end of one would refuse the beginning of the next."""
    guard = start(log, epoch=1, v2=True)
    append(log, marker(7, 1, abort=False), origin=COORDINATOR)
    write(log, 0, guard, epoch=1)


def test_later_batch_does_not_open_the_transaction(log: UnifiedLog) -> None:
    """Batches verified side by side would be stored out of order when the second is answered first."""
    guard = start(log, 5)
    assert start(log, 3) is guard
    assert start(log, 9) is guard
    with pytest.raises(OutOfOrderSequenceNumberError, match=r"5 \(incoming seq. number\), 3 \(earliest seen"):
        write(log, 5, guard)
    write(log, 3, guard)
    write(log, 4)


def test_first_batch_of_a_new_producer_has_sequence_zero(log: UnifiedLog) -> None:
    """The producer's first batch may be lost, and those after it pass for all that there was."""
    guard = start(log, 3, v2=True)
    with pytest.raises(OutOfOrderSequenceNumberError, match="Expected sequence 0 for transactions v2"):
        write(log, 3, guard)
    assert start(log, 0, v2=True) is guard
    write(log, 0, guard)


def test_newer_epoch_takes_over_a_verification(log: UnifiedLog) -> None:
    """A restarted producer would be held to its predecessor's sequence."""
    guard = start(log, 40, epoch=0)
    assert start(log, 0, epoch=1) is guard
    with pytest.raises(OutOfOrderSequenceNumberError, match="earliest seen"):
        write(log, 41, guard, epoch=1)
    write(log, 0, guard, epoch=1)


def test_fenced_producer_gets_no_guard(log: UnifiedLog) -> None:
    """A zombie would be told that its transaction is unknown, and retry, rather than that it has been replaced."""
    write(log, 0, start(log, epoch=2), epoch=2)
    append(log, marker(7, 2, abort=False), origin=COORDINATOR)
    with pytest.raises(InvalidProducerEpochError, match="which is smaller than the last seen epoch 2"):
        start(log, 0, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        write(log, 1, epoch=1)


def test_unanswered_verification_is_forgotten(log: UnifiedLog) -> None:
    """Memory would grow with every producer whose coordinator never answered."""
    guard = start(log)
    log.producer_state.remove_expired(START_MS + 86_399_999)
    assert log.producer_state.verification_guard(7) is guard
    log.producer_state.remove_expired(START_MS + 86_400_000)
    assert log.producer_state.verification_guard(7) is NO_GUARD


def test_retry_and_marker_and_replica_need_no_guard(log: UnifiedLog, tmp_path: Path) -> None:
    """A retried batch, a coordinator's marker or a follower's copy would be refused."""
    write(log, 0, start(log))
    append(log, marker(7, 0, abort=False), origin=COORDINATOR)
    assert write(log, 0).duplicate
    data = log.read_bytes(0, 1 << 20)
    env = environment()
    env.verifies = True
    copy = open_log(tmp_path / "copy", env=env)
    copy.append_as_follower(data)
    assert copy.log_end_offset == 2


def test_the_setting_is_followed_at_run_time(tmp_path: Path) -> None:
    """An operator who turns verification off to let producers through, or on, would have to restart the broker."""
    config = BrokerConfig.from_mapping({"log.dirs": str(tmp_path)})
    manager = LogManager(config, HandClock(), UNSYNCED_FILES)
    manager.start("MkU3OEVBNTcwNTJENDM2Qg")
    log = manager.get_or_create_log(TopicPartition("loaded", 0), random_uuid(), LogConfig())
    for number, verifies in enumerate((False, True, False)):
        manager.follow(BrokerConfig.from_mapping({"log.dirs": str(tmp_path), SETTING: str(verifies).lower()}))
        made = manager.get_or_create_log(TopicPartition("made", number), random_uuid(), LogConfig())
        for each in (log, made):
            data = batch(producer_id=number, epoch=0, sequence=0, transactional=True)
            if verifies:
                with pytest.raises(InvalidTxnStateError):
                    each.append_as_leader(data, 0)
            else:
                each.append_as_leader(data, 0)
    manager.shutdown()
