"""What a client reports.  Each message says what happened, at which broker, and what to do about it."""

from __future__ import annotations

from kbroker.error_codes import error_name
from kbroker.errors import RETRIABLE as KAFKA_RETRIABLE
from kbroker.errors import ErrorCode


class ClientError(Exception):
    """The base of everything the client raises."""


class BrokerUnreachableError(ClientError):
    """No connection: nothing listens there, the name is unknown, or no answer comes."""


class ConnectionLostError(ClientError):
    """The broker closed the connection or died in the middle of an answer."""


class BrokerTimeoutError(ClientError):
    """The broker took a request and did not answer in time.  The connection is of no more use."""


class UnsupportedError(ClientError):
    """The broker, or this client, cannot do what was asked: no common version, or a protocol that is not spoken."""


class MalformedAnswerError(ClientError):
    """An answer that is none: no Kafka broker, a listener with TLS, or a damaged stream."""


class OtherProtocolError(MalformedAnswerError):
    """The server speaks HTTP or TLS."""


class TopicUnknownError(ClientError):
    """A topic or partition does not exist (or may not be seen)."""


class OffsetGoneError(ClientError):
    """The offset is outside of what the partition holds: `log_start_offset` and `log_end_offset` say what that is."""

    def __init__(self, message: str, log_start_offset: int = -1, log_end_offset: int = -1) -> None:
        super().__init__(message)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class BrokerAnsweredError(ClientError):
    """The broker refused with one of Kafka's error codes.  `retriable` when the same request may succeed later."""

    def __init__(self, code: int, what: str) -> None:
        self.code = code
        self.retriable = code in RETRIABLE
        super().__init__(f"{what}: the broker answered {error_name(code)} ({code})")


class RetriesExhaustedError(ClientError):
    """Something that may pass went on for longer than the caller wanted to wait; the last error is the cause."""


# Beside Kafka's retriable errors, a broker that is about to be there.
RETRIABLE = KAFKA_RETRIABLE | {ErrorCode.BROKER_NOT_AVAILABLE}

# Connection-level errors after which another try, on a new connection, may succeed.
PASSING = (BrokerUnreachableError, ConnectionLostError, BrokerTimeoutError)
