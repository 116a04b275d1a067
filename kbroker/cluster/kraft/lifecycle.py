"""A broker's life in a KRaft cluster, as a state machine without clock and network (KIP-631).

    UNREGISTERED   registers; a registration that the log has lost, or that a controller calls stale, begins here again
    CATCHING_UP    sends heartbeats that want to stay fenced, until its image has come to its own registration
    FENCED         wants to be unfenced once it serves
    RUNNING        a heartbeat every `broker.heartbeat.interval.ms`
    LEAVING        wants to shut down: the controllers move leadership away first
    GONE           the controllers let it go

A heartbeat's answer may be older than the image: what the log says of fencing counts for roles, and this machine only
decides what to send next and when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from kbroker.backoff import ExponentialBackoff
from kbroker.error_codes import ErrorCode
from kbroker.schemas import schema, wire

NO_EPOCH = -1
LAST_REGISTRATION = schema("BrokerRegistrationRequest").max_version
LAST_HEARTBEAT = schema("BrokerHeartbeatRequest").max_version
OFFLINE_FROM = schema("BrokerHeartbeatRequest").first_version("offline_log_dirs")
CORDONED_FROM = schema("BrokerHeartbeatRequest").first_version("cordoned_log_dirs")
CATCH_UP_SECONDS = 0.01
UNFENCE_SECONDS = 0.05
LEAVE_SECONDS = 0.05
RETRY_SECONDS = 0.1
MOST_RETRY_SECONDS = 2.0
DUPLICATE_SECONDS = 0.5
"""Between attempts while the session of the broker's earlier life is not over."""

FATAL = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the controllers are of another cluster",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster has a feature at a level that this kbroker does not have",
    ErrorCode.INVALID_REGISTRATION: "the controllers refuse this broker's id, listeners or log directories",
}


class State(Enum):
    """See the module."""

    UNREGISTERED = auto()
    CATCHING_UP = auto()
    FENCED = auto()
    RUNNING = auto()
    LEAVING = auto()
    GONE = auto()


class RegistrationRefusedError(Exception):
    """The controllers do not take this broker, now or later; the text says why."""


@dataclass(frozen=True, slots=True)
class OwnIdentity:
    """What a registration says of a broker and does not change while the process runs.

    `incarnation_id` is random for each process; `log_dirs()` are the ids of the directories that work, in order, and
    `cordoned_dirs()` of those that take no new replicas (`cordoned.log.dirs`).
    """

    node_id: int
    cluster_id: str
    incarnation_id: bytes
    rack: str | None
    features: tuple[wire.BrokerRegistrationRequest.Feature, ...]
    log_dirs: Callable[[], list[bytes]]
    cordoned_dirs: Callable[[], list[bytes]] = list


class Lifecycle:
    """Belongs to the task that sends its requests; times are in seconds."""

    def __init__(self, identity: OwnIdentity, previous_epoch: int, heartbeat_seconds: float) -> None:
        """`previous_epoch`: of the life before, if it ended in order; else -1."""
        self._identity = identity
        self._previous_epoch = previous_epoch
        self._heartbeat_seconds = heartbeat_seconds
        self._failures = 0
        self.state = State.UNREGISTERED
        self.epoch = NO_EPOCH
        self.is_ready = False
        """Whether the broker serves, so that it may be unfenced."""
        self.offline_dirs: set[bytes] = set()

    # Registration

    def registration(
        self, listeners: list[wire.BrokerRegistrationRequest.Listener], version: int = LAST_REGISTRATION
    ) -> wire.BrokerRegistrationRequest:
        """The request for a registration.  Before version 4 controllers take no range that begins at 0."""
        own = self._identity
        return wire.BrokerRegistrationRequest(
            broker_id=own.node_id,
            cluster_id=own.cluster_id,
            incarnation_id=own.incarnation_id,
            listeners=listeners,
            features=[each for each in own.features if version >= LAST_REGISTRATION or each.min_supported_version],
            rack=own.rack,
            is_migrating_zk_broker=False,
            log_dirs=own.log_dirs(),
            previous_broker_epoch=self._previous_epoch,
        )

    def registered(self, answer: wire.BrokerRegistrationResponse) -> float:
        """Take the answer; seconds until the next request.  RegistrationRefusedError."""
        if answer.error_code:
            return self._refused(ErrorCode(answer.error_code))
        self._failures = 0
        self.epoch = self._previous_epoch = answer.broker_epoch
        self.state = State.CATCHING_UP
        return 0.0

    def _refused(self, code: ErrorCode) -> float:
        if code in FATAL:
            raise RegistrationRefusedError(f"{FATAL[code]} ({code.name})")
        if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return DUPLICATE_SECONDS
        return self.failed()

    # Heartbeats

    def heartbeat(self, applied_offset: int, version: int = LAST_HEARTBEAT) -> wire.BrokerHeartbeatRequest:
        """The next heartbeat; `applied_offset` is that of the last record that the image has."""
        # Sent only once registered: before that the controllers do not know these directories.
        says_cordoned = version >= CORDONED_FROM and self.state not in (State.UNREGISTERED, State.CATCHING_UP)
        return wire.BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=applied_offset,
            want_fence=not self.is_ready and self.state is not State.LEAVING,
            want_shut_down=self.state is State.LEAVING,
            offline_log_dirs=sorted(self.offline_dirs) if version >= OFFLINE_FROM else [],
            cordoned_log_dirs=sorted(self._identity.cordoned_dirs()) if says_cordoned else None,
        )

    def answered(self, answer: wire.BrokerHeartbeatResponse, *, knows_itself: bool) -> float:
        """Take the answer; seconds until the next request.  `knows_itself`: the image has the own registration."""
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.STALE_BROKER_EPOCH:
            self.lost()
            return 0.0
        if code:
            return self.failed()
        self._failures = 0
        match self.state:
            case State.LEAVING:
                if answer.should_shut_down:
                    self.state = State.GONE
                return LEAVE_SECONDS
            case State.CATCHING_UP:
                if answer.is_caught_up and knows_itself:
                    self.state = State.FENCED
                return CATCH_UP_SECONDS
            case State.FENCED | State.RUNNING:
                if not self.is_ready:
                    return self._heartbeat_seconds
                self.state = State.FENCED if answer.is_fenced else State.RUNNING
                return UNFENCE_SECONDS if answer.is_fenced else self._heartbeat_seconds
            case _:
                return self._heartbeat_seconds

    def failed(self) -> float:
        """A request had no answer, or one that may be another the next time; seconds until the next request."""
        longest = min(MOST_RETRY_SECONDS, self._heartbeat_seconds)
        self._failures += 1
        return ExponentialBackoff(RETRY_SECONDS, longest).backoff(self._failures - 1)

    def lost(self) -> None:
        """The registration is gone: begin anew, as the same incarnation."""
        if self.state not in (State.UNREGISTERED, State.GONE):
            self.state = State.UNREGISTERED
            self.epoch = NO_EPOCH

    def leave(self) -> None:
        """Ask to be let go from now on; a broker that is not registered is gone at once."""
        self.state = State.GONE if self.epoch == NO_EPOCH else State.LEAVING
        self._failures = 0
