"""What a node of the quorum answers other nodes and tools (`RaftService`; KIP-595, 630, 853, 996, 1166).

A fetch says which records a replica has on disk; it waits for more where there are none and the replica knows the high
watermark.  It ends when records come, when the high watermark moves, and with NOT_LEADER_OR_FOLLOWER when this node
leads no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.cluster.kraft.quorum_requests import METADATA_TOPIC_ID
from kbroker.cluster.kraft.quorum_steps import UNKNOWN, LogPlace, SnapshotId
from kbroker.cluster.raft.election import ReplicaKey
from kbroker.cluster.raft.messages import MalformedRequestError, VoterRequest, refusal, refused, request_of, response_of
from kbroker.cluster.raft.voter_changes import VoterChanges
from kbroker.error_codes import ErrorCode
from kbroker.metadata.image import Endpoint
from kbroker.protocol.api import ApiKey
from kbroker.schemas import response_schema, schema, wire
from kbroker.types import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.cluster.raft.machine import Fetched
    from kbroker.cluster.raft.replica import RaftReplica
    from kbroker.protocol.messages import Message

FORGET_SECONDS = 300.0
"""An observer that has not fetched for so long is not described any more."""
MOST_SEEN = 10_000
"""Of so many replicas is it known how far they are; those that have not fetched for the longest time are forgotten."""
NOT_LEADER = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
    "For requests intended for any replica, this error indicates that the broker is not a replica of the topic "
    "partition."
)
_FIRST_WITH_TOPIC_ID = schema("FetchRequest").first_version("topics.topic_id")
_FIRST_WITH_HIGH_WATERMARK = schema("FetchRequest").first_version("topics.partitions.high_watermark")
_FIRST_WITH_DIRECTORIES = schema("DescribeQuorumResponse").first_version(
    "topics.partitions.current_voters.replica_directory_id"
)
_FIRST_WITH_NODES = schema("DescribeQuorumResponse").first_version("nodes")
_FIRST_WITH_ENDPOINTS = {
    api_key: response_schema(api_key).first_version("node_endpoints")
    for api_key in (
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
    )
}
_FIRST_WITH_LEADER = schema("FetchResponse").first_version("responses.partitions.current_leader")
_LAST_BY_REPLICA_ID = schema("FetchRequest").last_version("replica_id")


class _Seen(NamedTuple):
    """When and up to where a replica has fetched.  Times in seconds of the loop, and in ms since 1970."""

    end_offset: int
    at: float
    at_ms: int
    caught_up_ms: int
    log_end: int
    """Where the leader's log ended then."""


class RaftAnswers:
    """`RaftService` of a replica."""

    def __init__(self, replica: RaftReplica) -> None:
        self._replica = replica
        self._seen: dict[ReplicaKey, _Seen] = {}
        self._seen_in = -1
        self.voters = VoterChanges(replica, self.has_caught_up)

    @property
    def leader_id(self) -> int:
        """See `RaftService`."""
        return self._replica.leader_id

    # -- elections ----------------------------------------------------------------------------------------------------

    async def vote(self, request: wire.VoteRequest, version: int) -> wire.VoteResponse:
        """See `RaftService`."""
        response = await self._voter_asks(request, version)
        assert isinstance(response, wire.VoteResponse)
        return response

    async def begin_epoch(self, request: wire.BeginQuorumEpochRequest, version: int) -> wire.BeginQuorumEpochResponse:
        """See `RaftService`."""
        self._learn(request)
        response = await self._voter_asks(request, version)
        assert isinstance(response, wire.BeginQuorumEpochResponse)
        return response

    async def end_epoch(self, request: wire.EndQuorumEpochRequest, version: int) -> wire.EndQuorumEpochResponse:
        """See `RaftService`."""
        self._learn(request)
        response = await self._voter_asks(request, version)
        assert isinstance(response, wire.EndQuorumEpochResponse)
        return response

    async def _voter_asks(self, request: VoterRequest, version: int) -> Message:
        replica = self._replica
        try:
            asked = request_of(request, replica.cluster_id, replica.me)
        except MalformedRequestError as error:
            return refused(request, error.code)
        replica.check()
        answer, steps = replica.machine.asked(asked, replica.parts.loop.time())
        replica.take(steps)
        await replica.persisted()
        return response_of(request, answer, self._endpoints(request, version, answer.leader_id))

    def _learn(self, request: wire.BeginQuorumEpochRequest | wire.EndQuorumEpochRequest) -> None:
        """Where the leader says that it listens."""
        listener = self._replica.parts.settings.listener
        if not request.topics or not request.topics[0].partitions:
            return
        if refusal(request.cluster_id, self._replica.cluster_id) is not None:
            return
        leader_id = request.topics[0].partitions[0].leader_id
        for each in request.leader_endpoints or ():
            if each.name.upper() == listener:
                self._replica.learnt({leader_id: Endpoint(each.host, each.port)})

    def _endpoints(self, request: Message, version: int, leader_id: int) -> Mapping[int, Endpoint]:
        """The leader's address, where it is known and answers of the version have room for it."""
        assert request.api_key is not None
        if version < _FIRST_WITH_ENDPOINTS[ApiKey(request.api_key)]:
            return {}
        at = self._replica.endpoint_of(leader_id)
        return {} if at is None else {leader_id: at}

    # -- the log ------------------------------------------------------------------------------------------------------

    async def fetch(self, request: wire.FetchRequest, version: int) -> wire.FetchResponse:
        """See `RaftService`."""
        code = refusal(request.cluster_id, self._replica.cluster_id)
        if code is not None:
            return wire.FetchResponse(error_code=int(code))
        asked = _partition(request, version)
        if asked is None:
            return wire.FetchResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        replica, row = self._replica, wire.FetchResponse.PartitionData(partition_index=0, log_start_offset=0)
        row.last_stable_offset = row.high_watermark = UNKNOWN
        key = ReplicaKey(_replica_id(request, version), bytes(asked.replica_directory_id))
        place = LogPlace(asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch, asked.high_watermark)
        now = replica.parts.loop.time()
        if key.node_id == replica.me.node_id and replica.machine.progress is not None:
            row.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        elif request.max_wait_ms < 0:
            row.error_code = int(ErrorCode.INVALID_REQUEST)
        else:
            replica.check()
            found, steps = replica.machine.fetched(key, place, now)
            replica.take(steps)
            await self._serve(row, found, key, place, request, version)
        await replica.persisted()
        return self._fetch_response(request, row, version)

    async def _serve(
        self,
        row: wire.FetchResponse.PartitionData,
        found: Fetched,
        key: ReplicaKey,
        place: LogPlace,
        request: wire.FetchRequest,
        version: int,
    ) -> None:
        replica = self._replica
        row.error_code = found.error
        if found.error:
            return
        snapshot = replica.parts.directory.newest_snapshot
        has_snapshot = snapshot is not None and snapshot.end_offset > 0
        if found.needs_snapshot or (place.end_offset == 0 and has_snapshot):
            if snapshot is None or not has_snapshot:
                row.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
                return
            row.snapshot_id.end_offset, row.snapshot_id.epoch = snapshot
            row.high_watermark = self._high_watermark()
            return
        if found.diverging is not None:
            row.diverging_epoch.epoch, row.diverging_epoch.end_offset = found.diverging
            row.high_watermark = self._high_watermark()
            return
        self._note(key, place.end_offset)
        epoch = replica.machine.epoch
        known = place.high_watermark if version >= _FIRST_WITH_HIGH_WATERMARK else UNKNOWN

        def is_due() -> bool:
            leads = replica.machine.progress is not None and replica.machine.epoch == epoch
            has_news = version >= _FIRST_WITH_HIGH_WATERMARK and self._high_watermark() > known
            return not leads or has_news or replica.quorum.end_offset > place.end_offset

        await replica.changes.wait_until(is_due, request.max_wait_ms / 1000)
        if replica.machine.progress is None or replica.machine.epoch != epoch:
            row.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        row.records = await self._read(place.end_offset, request.max_bytes)
        row.high_watermark = self._high_watermark()

    def _high_watermark(self) -> int:
        progress = self._replica.machine.progress
        return UNKNOWN if progress is None else progress.answered_high_watermark

    async def _read(self, offset: int, max_bytes: int) -> bytes:
        replica = self._replica
        if offset >= replica.quorum.end_offset:
            return b""
        found = replica.tail.read(offset, max_bytes)
        if found is None:
            found = await replica.log.on_disk(replica.parts.directory.read, offset, max_bytes)
        return found

    def _fetch_response(
        self, request: wire.FetchRequest, row: wire.FetchResponse.PartitionData, version: int
    ) -> wire.FetchResponse:
        replica, made = self._replica, wire.FetchResponse
        if version >= _FIRST_WITH_LEADER:
            row.current_leader.leader_id, row.current_leader.leader_epoch = replica.leader_id, replica.machine.epoch
        topic = made.FetchableTopicResponse(partitions=[row])
        if version >= _FIRST_WITH_TOPIC_ID:
            topic.topic_id = METADATA_TOPIC_ID
        else:
            topic.topic = CLUSTER_METADATA_TOPIC
        response = made(responses=[topic])
        for node_id, at in self._endpoints(request, version, replica.leader_id).items():
            response.node_endpoints = [made.NodeEndpoint(node_id=node_id, host=at.host, port=at.port, rack=None)]
        return response

    async def fetch_snapshot(self, request: wire.FetchSnapshotRequest, version: int) -> wire.FetchSnapshotResponse:
        """See `RaftService`."""
        replica, made = self._replica, wire.FetchSnapshotResponse
        code = refusal(request.cluster_id, replica.cluster_id)
        if code is not None:
            return made(error_code=int(code))
        rows = [each for topic in request.topics for each in topic.partitions]
        is_ours = len(rows) == 1 and rows[0].partition == 0 and request.topics[0].name == CLUSTER_METADATA_TOPIC
        if not is_ours:
            return made(error_code=int(ErrorCode.INVALID_REQUEST))
        asked = rows[0]
        row = made.PartitionSnapshot(index=0, unaligned_records=b"")
        snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        row.snapshot_id.end_offset, row.snapshot_id.epoch = snapshot
        row.position = asked.position
        row.error_code = self._may_not(asked.current_leader_epoch)
        if not row.error_code:
            replica.machine.heard(
                ReplicaKey(request.replica_id, bytes(asked.replica_directory_id)), replica.parts.loop.time()
            )
            await self._piece(row, snapshot, request.max_bytes)
        row.current_leader.leader_id, row.current_leader.leader_epoch = replica.leader_id, replica.machine.epoch
        nodes = [
            made.NodeEndpoint(node_id=node_id, host=at.host, port=at.port)
            for node_id, at in self._endpoints(request, version, replica.leader_id).items()
        ]
        topic = made.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[row])
        return made(topics=[topic], node_endpoints=nodes)

    def _may_not(self, epoch: int) -> int:
        """The error of a request of this epoch that only its leader serves; 0: none."""
        machine = self._replica.machine
        if epoch < machine.epoch:
            return int(ErrorCode.FENCED_LEADER_EPOCH)
        if epoch > machine.epoch:
            return int(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return 0 if machine.progress is not None else int(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def _piece(
        self, row: wire.FetchSnapshotResponse.PartitionSnapshot, snapshot: SnapshotId, max_bytes: int
    ) -> None:
        directory = self._replica.parts.directory
        if row.position < 0:
            row.error_code = int(ErrorCode.POSITION_OUT_OF_RANGE)
            return
        found = None
        if snapshot.end_offset > 0:
            found = await self._replica.log.on_disk(directory.read_snapshot, snapshot, row.position, max_bytes)
        if found is None:
            row.error_code = int(ErrorCode.SNAPSHOT_NOT_FOUND)
        elif row.position >= found[0]:
            row.error_code = int(ErrorCode.POSITION_OUT_OF_RANGE)
        else:
            row.size, row.unaligned_records = found

    # -- voters -------------------------------------------------------------------------------------------------------

    async def add_voter(self, request: wire.AddRaftVoterRequest, version: int) -> wire.AddRaftVoterResponse:
        """See `RaftService`."""
        return await self.voters.add(request)

    async def remove_voter(self, request: wire.RemoveRaftVoterRequest, version: int) -> wire.RemoveRaftVoterResponse:
        """See `RaftService`."""
        return await self.voters.remove(request)

    async def update_voter(self, request: wire.UpdateRaftVoterRequest, version: int) -> wire.UpdateRaftVoterResponse:
        """See `RaftService`."""
        return await self.voters.update(request)

    # -- description --------------------------------------------------------------------------------------------------

    def _note(self, key: ReplicaKey, end_offset: int) -> None:
        """A replica has fetched validly; one without an id is served and not described."""
        if key.node_id < 0:
            return
        replica = self._replica
        if self._seen_in != replica.machine.epoch:
            self._seen, self._seen_in = {}, replica.machine.epoch
        now, now_ms, log_end = replica.parts.loop.time(), replica.parts.clock.now_ms(), replica.quorum.end_offset
        before = self._seen.get(key)
        caught_up_ms = -1 if before is None else before.caught_up_ms
        if end_offset >= log_end:
            caught_up_ms = now_ms
        elif before is not None and end_offset >= before.log_end:
            caught_up_ms = before.at_ms
        self._seen.pop(key, None)
        self._seen[key] = _Seen(end_offset, now, now_ms, caught_up_ms, log_end)
        if len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]

    def has_caught_up(self, key: ReplicaKey, within: float) -> bool:
        """Whether a replica has had all once in this epoch, and fetched of late."""
        seen = self._seen.get(key) if self._seen_in == self._replica.machine.epoch else None
        return seen is not None and seen.caught_up_ms >= 0 and self._replica.parts.loop.time() - seen.at <= within

    async def describe(self, request: wire.DescribeQuorumRequest, version: int) -> wire.DescribeQuorumResponse:
        """See `RaftService`."""
        made, replica = wire.DescribeQuorumResponse, self._replica
        rows = [each for topic in request.topics for each in topic.partitions]
        is_ours = (
            len(rows) == 1 and rows[0].partition_index == 0 and request.topics[0].topic_name == CLUSTER_METADATA_TOPIC
        )
        row = made.PartitionData(partition_index=0, error_message="")
        response = made(error_message="")
        if not is_ours:
            response.topics = [
                made.TopicData(
                    topic_name=topic.topic_name,
                    partitions=[
                        made.PartitionData(
                            partition_index=each.partition_index,
                            error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                            error_message="",
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            return response
        response.topics = [made.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[row])]
        if replica.machine.progress is None:
            row.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            row.error_message = NOT_LEADER
            return response
        row.leader_id, row.leader_epoch = replica.me.node_id, replica.machine.epoch
        row.high_watermark = self._high_watermark()
        voters = replica.history.last.by_id
        row.current_voters = [self._state(each.key, version) for each in voters.values()]
        row.observers = [self._state(key, version) for key in self._observers()]
        if version < _FIRST_WITH_NODES:
            return response
        response.nodes = [
            made.Node(
                node_id=node_id,
                listeners=[
                    made.Listener(name=name, host=at.host, port=at.port) for name, at in voter.endpoints.items()
                ],
            )
            for node_id, voter in voters.items()
        ]
        return response

    def _observers(self) -> list[ReplicaKey]:
        """Those that have fetched from this leader of late, and do not vote."""
        now, known = self._replica.parts.loop.time(), self._replica.machine.voters
        seen = self._seen if self._seen_in == self._replica.machine.epoch else {}
        return [key for key, each in seen.items() if not known.has(key) and now - each.at < FORGET_SECONDS]

    @property
    def observer_count(self) -> int:
        """How many observers this leader describes."""
        return len(self._observers())

    def _state(self, key: ReplicaKey, version: int) -> wire.DescribeQuorumResponse.ReplicaState:
        replica = self._replica
        row = wire.DescribeQuorumResponse.ReplicaState(replica_id=key.node_id)
        if version >= _FIRST_WITH_DIRECTORIES:
            row.replica_directory_id = key.directory_id
        if key.node_id == replica.me.node_id:
            row.log_end_offset = replica.quorum.end_offset
            row.last_fetch_timestamp = row.last_caught_up_timestamp = replica.parts.clock.now_ms()
            return row
        # A voter of a static quorum may have come back with another directory: the last one counts.
        found = [seen for known, seen in self._seen.items() if key.matches(known)]
        seen = max(found, key=lambda each: each.at, default=None)
        if seen is None:
            row.log_end_offset = row.last_fetch_timestamp = row.last_caught_up_timestamp = -1
        else:
            row.log_end_offset, row.last_fetch_timestamp = seen.end_offset, seen.at_ms
            row.last_caught_up_timestamp = seen.caught_up_ms
        return row


def _partition(request: wire.FetchRequest, version: int) -> wire.FetchRequest.FetchPartition | None:
    """The one partition of a fetch of the metadata log; None where it is of anything else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    is_ours = (
        bytes(topic.topic_id) == METADATA_TOPIC_ID
        if version >= _FIRST_WITH_TOPIC_ID
        else topic.topic == CLUSTER_METADATA_TOPIC
    )
    row = topic.partitions[0]
    return row if is_ours and row.partition == 0 else None


def _replica_id(request: wire.FetchRequest, version: int) -> int:
    return request.replica_id if version <= _LAST_BY_REPLICA_ID else request.replica_state.replica_id
