"""The model's controllers as processes of the simulated network: what they are asked, and when they answer.

A decision is answered once its records are committed; by a controller that is not the active one any more, with
NOT_CONTROLLER.  One that changes nothing waits for what it was decided upon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbroker.cluster.kraft.quorum_steps import LogPlace, SnapshotId
from kbroker.error_codes import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_request_header
from kbroker.schemas import request_message, response_message, schema, wire
from tests.cluster.kraft.controllers import VOTERS, endpoint_of
from tests.simulation.kraft.administration import administer
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from kbroker.protocol.frames import RequestHeader
    from tests.simulation.kraft.quorum import SimulatedControllers
    from tests.simulation.sockets import End, Network

BUFFER_BYTES = 1 << 16
SERVED = (
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.API_VERSIONS,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ENVELOPE,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.ALTER_CLIENT_QUOTAS,
)
FIRST_WITH_ENDPOINTS, FIRST_WITH_HIGH_WATERMARK = 16, 18
Answer = Callable[[Any], None]


class Connection:
    """A broker's connection to a controller."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._buffer = bytearray(BUFFER_BYTES)
        self._data = bytearray()
        self.end: End | None = None

    def connection_made(self, end: End) -> None:
        """See asyncio's BufferedProtocol, for this and the next."""
        self.end = end

    def get_buffer(self, _size: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self._data += self._buffer[:size]
        while len(self._data) >= 4 and len(self._data) >= 4 + (length := int.from_bytes(self._data[:4], "big")):
            frame = bytes(self._data[4 : 4 + length])
            del self._data[: 4 + length]
            self._node.asked(self, frame)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self.end = None

    def answer(self, header: RequestHeader, answer: Any) -> None:
        """Send it, if somebody is there to take it."""
        if self.end is not None and not self.end.is_closing():
            self.end.write(encoded(header, answer)[0])


def encoded(header: RequestHeader, answer: Any) -> tuple[bytes, bytes]:
    """An answer with its length and without."""
    program = response_message(header.api_key).program(header.api_version)
    is_flexible = header.api_key != ApiKey.API_VERSIONS and schema(
        f"{ApiKey(header.api_key).message_name}Response"
    ).is_flexible(header.api_version)
    made = program.encode_response(answer, header.correlation_id, is_flexible)
    whole = made if isinstance(made, bytes) else b"".join(bytes(part) for part in made)
    return whole, whole[4:]


@dataclass(slots=True)
class _Parked:
    """A fetch that waits for news."""

    until: float
    version: int
    place: LogPlace
    max_bytes: int
    answer: Answer


@dataclass(slots=True)
class _Waiting:
    """An answer that waits until all below an offset is committed."""

    offset: int
    epoch: int
    answer: Answer
    content: Any
    refusal: Any
    """What is said when the controller is not the active one any more."""


@dataclass(slots=True)
class Node:
    """One controller's process."""

    node_id: int
    controllers: SimulatedControllers
    network: Network
    process: Process = field(init=False)
    _parked: list[_Parked] = field(default_factory=list)
    _waiting: list[_Waiting] = field(default_factory=list)

    def start(self) -> None:
        """Listen."""
        self.process = Process(f"controller-{self.node_id}")
        at = endpoint_of(self.node_id)
        self.process.call(self.network.serve, lambda: Connection(self), (at.host, at.port))

    def kill(self) -> None:
        """All that is not in its log is gone."""
        self.network.end_process(self.process)
        self._parked.clear()
        self._waiting.clear()

    # What is asked

    def asked(self, connection: Connection, frame: bytes) -> None:
        header = decode_request_header(frame)
        request = request_message(header.api_key).program(header.api_version).decode(frame, header.size)

        def answer(content: Any) -> None:
            connection.answer(header, content)

        match request:
            case wire.ApiVersionsRequest():
                answer(self._versions())
            case wire.FetchRequest():
                self._fetch(header.api_version, request, answer)
            case wire.FetchSnapshotRequest():
                asked = request.topics[0].partitions[0]
                snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
                found = self.controllers.fetch_snapshot(
                    self.node_id, asked.current_leader_epoch, snapshot, asked.position, request.max_bytes
                )
                answer(found)
            case wire.EnvelopeRequest():
                inner = decode_request_header(request.request_data)
                body = request_message(inner.api_key).program(inner.api_version)
                wanted = body.decode(request.request_data, inner.size)

                def enveloped(content: Any) -> None:
                    if not isinstance(content, wire.EnvelopeResponse):
                        content = wire.EnvelopeResponse(response_data=encoded(inner, content)[1])
                    answer(content)

                refusal = wire.EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER, response_data=None)
                self._decide(wanted, inner.api_version, enveloped, refusal)
            case _:
                self._decide(request, header.api_version, answer, refused(header.api_key, request))

    def _versions(self) -> wire.ApiVersionsResponse:
        made = wire.ApiVersionsResponse
        rows = []
        for key in SERVED:
            table = schema(f"{key.message_name}Request")
            rows.append(made.ApiVersion(api_key=key, min_version=table.min_version, max_version=table.max_version))
        return made(api_keys=rows)

    # The log

    def _fetch(self, version: int, request: wire.FetchRequest, answer: Answer) -> None:
        row = request.topics[0].partitions[0]
        known = row.high_watermark if version >= FIRST_WITH_HIGH_WATERMARK else 1 << 62
        place = LogPlace(row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch, known)
        until = self.controllers.loop.time() + request.max_wait_ms / 1000
        parked = _Parked(until, version, place, request.max_bytes, answer)
        if not self._serve(parked):
            self._parked.append(parked)

    def _serve(self, parked: _Parked) -> bool:
        """Answer a fetch if there is anything to say."""
        found = self.controllers.fetch(self.node_id, parked.place, parked.max_bytes)
        if found is None:
            return True
        row = found.responses[0].partitions[0]
        says_nothing = (
            not row.error_code
            and not row.records
            and row.snapshot_id.end_offset < 0
            and row.diverging_epoch.end_offset < 0
            and row.high_watermark <= parked.place.high_watermark
        )
        if says_nothing and self.controllers.loop.time() < parked.until:
            return False
        if parked.version < FIRST_WITH_ENDPOINTS:
            found.node_endpoints = []
        parked.answer(found)
        return True

    # Decisions

    def _decide(self, request: Any, version: int, answer: Answer, refusal: Any) -> None:
        controllers, active = self.controllers, self.controllers.actives.get(self.node_id)
        if active is None or not active.is_ready:
            answer(refusal)
            return
        batch = controllers.batch(self.node_id)
        match request:
            case wire.BrokerRegistrationRequest():
                content: Any = active.register(request, batch)
            case wire.BrokerHeartbeatRequest():
                content = active.beat(request, batch)
            case wire.AlterPartitionRequest():
                content = active.alter_partitions(request, batch)
            case wire.AssignReplicasToDirsRequest():
                content = active.assign(request, batch)
            case wire.AllocateProducerIdsRequest():
                content = active.producer_ids(request, batch)
            case _:
                content = administer(request, version, batch, controllers.rng)
        end = batch.base + len(batch.records)
        self._waiting.append(_Waiting(end, active.epoch, answer, content, refusal))
        if batch.records:
            controllers.write(self.node_id, batch.records)
        else:
            self.look()

    def look(self) -> None:
        """Answer what need not wait any more."""
        controllers, node = self.controllers, self.controllers.nodes[self.node_id]
        active = controllers.actives.get(self.node_id)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if active is None or active.epoch != each.epoch:
                each.answer(each.refusal)
            elif each.offset <= node.high_watermark:
                each.answer(each.content)
            else:
                self._waiting.append(each)
        self._parked = [each for each in self._parked if not self._serve(each)]


def refused(api_key: int, request: Any) -> Any:
    """What a controller that is not the active one says."""
    made = response_message(api_key)
    if isinstance(request, wire.CreateTopicsRequest):
        row = wire.CreateTopicsResponse.CreatableTopicResult
        return made(topics=[row(name=each.name, error_code=ErrorCode.NOT_CONTROLLER) for each in request.topics])
    return made(error_code=ErrorCode.NOT_CONTROLLER)


def nodes_of(controllers: SimulatedControllers, network: Network) -> dict[int, Node]:
    """All of them, started."""
    found = {each: Node(each, controllers, network) for each in VOTERS}
    for node in found.values():
        node.start()
    return found
