"""Kafka's error codes and the exceptions that carry them (KIP-less table: `docs/compatibility.md`).

Inside the broker a failure is an exception derived from `KafkaError`; only handlers turn it into a code.  A
`KafkaError` may carry a message, which goes to the client where the answer has a field for it.
"""

from __future__ import annotations

from typing import TypeVar, cast

from kbroker.error_codes import RETRIABLE, ErrorCode, error_name

__all__ = ["RETRIABLE", "ErrorCode"]

AnError = TypeVar("AnError", bound=BaseException)

MAX_MESSAGE_CHARACTERS = 0x7FFF // 4
"""A string on the wire has at most 32,767 bytes, and a character at most four."""


class KafkaError(Exception):
    """A failure with a Kafka error code.

    `code` is fixed per class; `KafkaError.of(code, message)` makes one for a code that has no class of its own.
    `leaves_stored`: a produce that fails so has its records in the log, where they may still be committed.
    A message goes into answers and may quote what a client sent: it is cut to what a string there can hold.
    """

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    leaves_stored = False

    def __init__(self, message: str | None = None) -> None:
        if message is not None and len(message) > MAX_MESSAGE_CHARACTERS:
            message = f"{message[: MAX_MESSAGE_CHARACTERS - 1]}\u2026"
        super().__init__(message if message is not None else self.code.name)
        self.message = message

    @staticmethod
    def of(code: ErrorCode, message: str | None = None) -> KafkaError:
        """An exception for `code`: of its own class where one exists, else a plain `KafkaError`."""
        error = _CLASSES.get(code, KafkaError)(message)
        error.code = code
        if message is None:
            error.args = (code.name,)
        return error


def refuse(code: int, message: str | None = None) -> None:
    """KafkaError where an answer has a code."""
    if code:
        known = ErrorCode(code) if code in set(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError.of(known, message or error_name(code))


def bare(error: AnError) -> AnError:
    """A caught error, to be kept: without the frames that it and its cause have passed, and all that those hold.

    The frames hold their locals and those of their callers.  An error that is kept in one of them, as in a list of
    outcomes, would be a cycle with the whole request, which reference counts never free.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def again(error: AnError) -> AnError:
    """A copy of a kept error, to be raised.

    The error itself would get the frames that it passes anew, and those hold what it is kept in.
    """
    # An OSError keeps its file's name apart from its arguments.
    _, arguments, *_ = cast("tuple[object, ...]", error.__reduce__())
    copied = type(error).__new__(type(error), *cast("tuple[object, ...]", arguments))
    copied.__dict__.update(error.__dict__)
    return copied


class OffsetOutOfRangeError(KafkaError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessageError(KafkaError):
    code = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartitionError(KafkaError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LeaderNotAvailableError(KafkaError):
    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollowerError(KafkaError):
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOutError(KafkaError):
    code = ErrorCode.REQUEST_TIMED_OUT
    leaves_stored = True


class MessageTooLargeError(KafkaError):
    code = ErrorCode.MESSAGE_TOO_LARGE


class CoordinatorLoadInProgressError(KafkaError):
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailableError(KafkaError):
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(KafkaError):
    code = ErrorCode.NOT_COORDINATOR


class InvalidTopicError(KafkaError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordListTooLargeError(KafkaError):
    code = ErrorCode.RECORD_LIST_TOO_LARGE


class NotEnoughReplicasError(KafkaError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(KafkaError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    leaves_stored = True


class IllegalGenerationError(KafkaError):
    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocolError(KafkaError):
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupIdError(KafkaError):
    code = ErrorCode.INVALID_GROUP_ID


class UnknownMemberIdError(KafkaError):
    code = ErrorCode.UNKNOWN_MEMBER_ID


class RebalanceInProgressError(KafkaError):
    code = ErrorCode.REBALANCE_IN_PROGRESS


class InvalidTimestampError(KafkaError):
    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedVersionError(KafkaError):
    code = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExistsError(KafkaError):
    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitionsError(KafkaError):
    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(KafkaError):
    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(KafkaError):
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfigError(KafkaError):
    code = ErrorCode.INVALID_CONFIG


class NotControllerError(KafkaError):
    code = ErrorCode.NOT_CONTROLLER


class InvalidRequestError(KafkaError):
    code = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormatError(KafkaError):
    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class PolicyViolationError(KafkaError):
    code = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequenceNumberError(KafkaError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(KafkaError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(KafkaError):
    code = ErrorCode.INVALID_TXN_STATE


class KafkaStorageError(KafkaError):
    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirNotFoundError(KafkaError):
    code = ErrorCode.LOG_DIR_NOT_FOUND


class NonEmptyGroupError(KafkaError):
    code = ErrorCode.NON_EMPTY_GROUP


class GroupIdNotFoundError(KafkaError):
    code = ErrorCode.GROUP_ID_NOT_FOUND


class FetchSessionIdNotFoundError(KafkaError):
    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpochError(KafkaError):
    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class FencedLeaderEpochError(KafkaError):
    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(KafkaError):
    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionTypeError(KafkaError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class GroupMaxSizeReachedError(KafkaError):
    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceIdError(KafkaError):
    code = ErrorCode.FENCED_INSTANCE_ID


class InvalidRecordError(KafkaError):
    code = ErrorCode.INVALID_RECORD


class UnknownTopicIdError(KafkaError):
    code = ErrorCode.UNKNOWN_TOPIC_ID


class InconsistentTopicIdError(KafkaError):
    code = ErrorCode.INCONSISTENT_TOPIC_ID


class FetchSessionTopicIdError(KafkaError):
    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class InvalidRecordStateError(KafkaError):
    code = ErrorCode.INVALID_RECORD_STATE


class FencedStateEpochError(KafkaError):
    code = ErrorCode.FENCED_STATE_EPOCH


class StaleControllerEpochError(KafkaError):
    code = ErrorCode.STALE_CONTROLLER_EPOCH


class StaleBrokerEpochError(KafkaError):
    code = ErrorCode.STALE_BROKER_EPOCH


class PreferredLeaderNotAvailableError(KafkaError):
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailableError(KafkaError):
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeededError(KafkaError):
    code = ErrorCode.ELECTION_NOT_NEEDED


class NoReassignmentInProgressError(KafkaError):
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class InvalidUpdateVersionError(KafkaError):
    code = ErrorCode.INVALID_UPDATE_VERSION


class BrokerIdNotRegisteredError(KafkaError):
    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class IneligibleReplicaError(KafkaError):
    code = ErrorCode.INELIGIBLE_REPLICA


class UnknownSubscriptionIdError(KafkaError):
    code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID


class TelemetryTooLargeError(KafkaError):
    code = ErrorCode.TELEMETRY_TOO_LARGE


class ThrottlingQuotaExceededError(KafkaError):
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


_CLASSES: dict[ErrorCode, type[KafkaError]] = {cls.code: cls for cls in KafkaError.__subclasses__()}
