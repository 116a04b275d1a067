"""Changes of the voters (KIP-853): adding, removing, moving one, and the step from fixed voters to those of the log.

Each change is a VotersRecord with all voters, one at a time: the next one waits for the one before to be committed, and
for the leader to have a high watermark of its own epoch.  A node that is to be added has caught up before.  A leader
that is removed leads until its removal is committed by the others, then resigns (`RaftReplica`).

A leader that listens elsewhere than the log says appends its own entry anew: it asks no other as voters do.

A request may take `controller.quorum.request.timeout.ms` of the leader; its own TimeoutMs says nothing, as in Kafka.

While kraft.version is 0 voters say where they listen once to each new leader, which keeps it for the step to 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from kbroker.cluster.client import NodeError
from kbroker.cluster.raft.election import ReplicaKey
from kbroker.cluster.raft.messages import refusal
from kbroker.cluster.raft.voter_set import DYNAMIC, KRAFT_VERSIONS, Voter, VoterSet
from kbroker.error_codes import ErrorCode
from kbroker.errors import (
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    UnsupportedVersionError,
    bare,
)
from kbroker.metadata.features import KRAFT_VERSION
from kbroker.metadata.image import Endpoint
from kbroker.records.control import ControlType
from kbroker.schemas import wire
from kbroker.types import ZERO_UUID, uuid_to_text

if TYPE_CHECKING:
    from kbroker.cluster.raft.leading import Leading
    from kbroker.cluster.raft.replica import RaftReplica

CAUGHT_UP_SECONDS = 3600.0
"""A node that is to be added has fetched within so long."""


class VoterChanges:
    """Of the leader.  `has_caught_up(replica, seconds)`: whether an observer has had all, and fetched so lately."""

    def __init__(self, replica: RaftReplica, has_caught_up: Callable[[ReplicaKey, float], bool]) -> None:
        self._replica = replica
        self._has_caught_up = has_caught_up
        self._is_busy = False
        self._said: dict[int, Voter] = {}
        """What voters have said of themselves to this leader while kraft.version is 0."""
        self._said_in = -1

    # What is asked

    async def add(self, request: wire.AddRaftVoterRequest) -> wire.AddRaftVoterResponse:
        """AddRaftVoter."""
        error = await _error_of(self._add(request))
        if error is None:
            return wire.AddRaftVoterResponse(error_message=None)
        return wire.AddRaftVoterResponse(error_code=int(error.code), error_message=error.message)

    async def remove(self, request: wire.RemoveRaftVoterRequest) -> wire.RemoveRaftVoterResponse:
        """RemoveRaftVoter."""
        error = await _error_of(self._remove(request))
        if error is None:
            return wire.RemoveRaftVoterResponse(error_message=None)
        return wire.RemoveRaftVoterResponse(error_code=int(error.code), error_message=error.message)

    async def _add(self, request: wire.AddRaftVoterRequest) -> None:
        replica = self._replica
        leading, until = self._leading(), self._limit()
        self._check_cluster(request.cluster_id)
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        if key.node_id < 0 or key.directory_id == ZERO_UUID:
            raise InvalidRequestError("Add voter request didn't include a valid voter")
        endpoints = _endpoints(request.listeners)
        at = endpoints.get(replica.parts.settings.listener)
        if at is None:
            listener = replica.parts.settings.listener
            raise InvalidRequestError(
                f"Add voter request didn't include the endpoint (Endpoints(endpoints={_shown(endpoints)})) for the "
                f"default listener ListenerName({listener})"
            )
        self._check_free(leading)
        self._check_dynamic("adding")
        voters = replica.history.last
        if key.node_id in voters.by_id:
            text = f"The voter id for {_key(key)} is already part of the set of voters [{_keys(voters)}]."
            raise KafkaError.of(ErrorCode.DUPLICATE_VOTER, text)
        self._is_busy = True
        try:
            versions = await self._versions(at)
            low, high = versions
            if not low <= replica.history.kraft_version <= high:
                raise InvalidRequestError(
                    f"Aborted add voter operation for {_key(key)} since kraft.version range {low} to {high} doesn't "
                    f"support the finalized version {replica.history.kraft_version}"
                )
            self._check_leading(leading)
            if not self._has_caught_up(key, CAUGHT_UP_SECONDS):
                raise RequestTimedOutError(
                    f"Aborted add voter operation for {_key(key)} since it is lagging behind: it has to have fetched "
                    "all of the log, and within the last hour"
                )
            end = self._append(leading, replica.history.last.put(Voter(key, endpoints, versions)))
        finally:
            self._is_busy = False
        if request.ack_when_committed:
            await self._committed(leading, end, until)

    async def _remove(self, request: wire.RemoveRaftVoterRequest) -> None:
        leading, until = self._leading(), self._limit()
        self._check_cluster(request.cluster_id)
        self._check_free(leading)
        self._check_dynamic("removing")
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        voters = self._replica.history.last
        known = voters.by_id.get(key.node_id)
        if known is None or known.key != key or len(voters.by_id) == 1:
            text = f"Cannot remove voter {_key(key)} from the set of voters [{_keys(voters)}]"
            raise KafkaError.of(ErrorCode.VOTER_NOT_FOUND, text)
        await self._committed(leading, self._append(leading, voters.without(key.node_id)), until)

    async def update(self, request: wire.UpdateRaftVoterRequest) -> wire.UpdateRaftVoterResponse:
        """UpdateRaftVoter."""
        replica = self._replica
        response = wire.UpdateRaftVoterResponse()
        try:
            self._update(request)
        except KafkaError as error:
            response.error_code = int(error.code)
        leader = response.current_leader
        leader.leader_id, leader.leader_epoch = replica.leader_id, replica.machine.epoch
        at = replica.endpoint_of(replica.leader_id)
        if at is not None:
            leader.host, leader.port = at
        return response

    def _update(self, request: wire.UpdateRaftVoterRequest) -> None:
        replica = self._replica
        self._check_cluster(request.cluster_id)
        if request.current_leader_epoch != replica.machine.epoch:
            is_old = request.current_leader_epoch < replica.machine.epoch
            raise KafkaError.of(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)
        leading = self._leading()
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        endpoints = _endpoints(request.listeners)
        feature = request.kraft_version_feature
        versions = feature.min_supported_version, feature.max_supported_version
        kraft_version = replica.history.kraft_version
        is_valid = key.node_id >= 0 and key.directory_id != ZERO_UUID
        if not is_valid or replica.parts.settings.listener not in endpoints:
            raise InvalidRequestError("Update voter request didn't include a voter and its default listener")
        if not versions[0] <= kraft_version <= versions[1]:
            raise InvalidRequestError("The voter does not know the kraft.version of the quorum")
        voters = replica.history.last
        known = voters.by_id.get(key.node_id)
        if known is None or not known.key.matches(key):
            text = f"{_key(key)} is not in the set of voters [{_keys(voters)}]"
            raise KafkaError.of(ErrorCode.VOTER_NOT_FOUND, text)
        replica.machine.heard(key, replica.parts.loop.time())
        voter = Voter(key, endpoints, versions)
        if kraft_version < DYNAMIC:
            if self._said_in != replica.machine.epoch:
                self._said, self._said_in = {}, replica.machine.epoch
            self._said[key.node_id] = voter
            return
        self._check_free(leading)
        if known != voter:
            self._append(leading, voters.put(voter))

    async def upgrade(self, version: int) -> None:
        """Finalize a kraft.version: all voters have to have said that they know it.  InvalidUpdateVersionError."""
        replica = self._replica
        leading = self._leading()
        now = replica.history.kraft_version
        if version == now:
            return
        if version < now or version > KRAFT_VERSIONS[1]:
            what = "downgrade" if version < now else "upgrade"
            raise InvalidUpdateVersionError(
                f"Invalid update version {version} for feature {KRAFT_VERSION}. Can't {what} from {now} to {version}."
            )
        self._check_free(leading)
        own = self._own()
        said = {**(self._said if self._said_in == replica.machine.epoch else {}), replica.me.node_id: own}
        voters = {node_id: said[node_id] for node_id in replica.history.last.by_id if node_id in said}
        missing = sorted(set(replica.history.last.by_id) - set(voters))
        unable = [node_id for node_id, each in voters.items() if not each.versions[0] <= version <= each.versions[1]]
        if missing or unable:
            raise InvalidUpdateVersionError(
                f"Invalid update version {version} for feature {KRAFT_VERSION}. The voters "
                f"{', '.join(map(str, [*missing, *unable]))} have not said that they know it."
            )
        record = wire.KRaftVersionRecord(version=0, kraft_version=version)
        made = VoterSet(voters)
        records = [(ControlType.KRAFT_VERSION, record), (ControlType.KRAFT_VOTERS, made.record())]
        await self._committed(leading, leading.append_control(records), self._limit())

    def keep_own(self) -> None:
        """Where this node leads and the log says of it what was so before, append what is so now; if another change is
        under way, nothing."""
        replica, leading = self._replica, self._replica.leading
        if leading is None or leading.is_over or replica.history.kraft_version < DYNAMIC:
            return
        voters = replica.history.last
        known, own = voters.by_id.get(replica.me.node_id), self._own()
        if known is None or known.key != own.key or known == own:
            return
        try:
            self._check_free(leading)
        except RequestTimedOutError:
            return
        self._append(leading, voters.put(own))

    def _own(self) -> Voter:
        return Voter(self._replica.me, dict(self._replica.parts.endpoints), KRAFT_VERSIONS)

    # What has to hold

    def _leading(self) -> Leading:
        leading = self._replica.leading
        if leading is None or leading.is_over:
            raise NotLeaderOrFollowerError()
        return leading

    def _check_leading(self, leading: Leading) -> None:
        if leading.is_over:
            raise NotLeaderOrFollowerError()

    def _check_cluster(self, cluster_id: str | None) -> None:
        if refusal(cluster_id, self._replica.cluster_id) is not None:
            raise KafkaError.of(ErrorCode.INCONSISTENT_CLUSTER_ID)

    def _check_free(self, leading: Leading) -> None:
        """One change at a time, and none before the leader has a high watermark of its own epoch."""
        replica = self._replica
        progress = replica.machine.progress
        has_watermark = progress is not None and progress.high_watermark > progress.start_offset
        if self._is_busy or not has_watermark or replica.history.last_offset >= replica.high_watermark:
            raise RequestTimedOutError("The request timed out.")

    def _check_dynamic(self, what: str) -> None:
        if self._replica.history.kraft_version < DYNAMIC:
            raise UnsupportedVersionError(
                f"Cluster doesn't support {what} voter because the {KRAFT_VERSION} feature is "
                f"{self._replica.history.kraft_version}"
            )

    def _limit(self) -> float:
        """Until when a request that comes now may take."""
        return self._replica.parts.loop.time() + self._replica.parts.settings.request_seconds

    async def _versions(self, at: Endpoint) -> tuple[int, int]:
        """Which kraft.version a node knows.  RequestTimedOutError where it cannot be asked."""
        try:
            return await self._replica.peers.kraft_versions(at)
        except (NodeError, ValueError) as error:
            raise RequestTimedOutError(f"The voter at {at.host}:{at.port} cannot be asked: {error}") from error

    def _append(self, leading: Leading, voters: VoterSet) -> int:
        return leading.append_control([(ControlType.KRAFT_VOTERS, voters.record())])

    async def _committed(self, leading: Leading, end_offset: int, until: float) -> None:
        """RequestTimedOutError where it takes longer than a request may; NotLeaderOrFollowerError."""
        replica = self._replica
        seconds = max(0.0, until - replica.parts.loop.time())
        await replica.changes.wait_until(lambda: leading.is_over or replica.high_watermark >= end_offset, seconds)
        if replica.high_watermark >= end_offset:
            return
        if leading.is_over:
            raise NotLeaderOrFollowerError()
        raise RequestTimedOutError("The request timed out.")


async def _error_of(change: Awaitable[None]) -> KafkaError | None:
    try:
        await change
    except KafkaError as error:
        return bare(error)
    return None


class _Listens(Protocol):
    name: str
    host: str
    port: int


def _endpoints(rows: Iterable[_Listens]) -> dict[str, Endpoint]:
    return {each.name.upper(): Endpoint(each.host, each.port) for each in rows}


def _shown(endpoints: dict[str, Endpoint]) -> str:
    rows = ", ".join(f"ListenerName({name})={at.host}/<unresolved>:{at.port}" for name, at in endpoints.items())
    return f"{{{rows}}}"


def _key(key: ReplicaKey) -> str:
    return f"ReplicaKey(id={key.node_id}, directoryId={uuid_to_text(key.directory_id)})"


def _keys(voters: VoterSet) -> str:
    return ", ".join(_key(each.key) for each in voters.by_id.values())
