"""A replica and a controller of a node that answer what is asked and remember it, and a node with both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbroker.assembly.controller_node import ControllerNode
from kbroker.assembly.quorum import ActiveController, ReplicaParts
from kbroker.cluster.controller.broker_lives import wrong_controller
from kbroker.cluster.controller.interface import Controller
from kbroker.cluster.requests import PartitionOutcome, TopicOutcome
from kbroker.config import BrokerConfig
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.image import ClusterImage, Endpoint
from kbroker.metadata.store import ProducerIdBlock
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import message, response_message, wire
from kbroker.storage.directories.log_dirs import MetaProperties, encode_meta_properties
from kbroker.types import random_uuid

CLUSTER_ID = "kbroker-test-cluster-1"
NODE_ID = 1


class StandInReplica:
    """A replica that votes for all and leads as `leader_id` says."""

    def __init__(self, parts: ReplicaParts) -> None:
        self.parts = parts
        self.leader_id = NODE_ID
        self.asked: list[tuple[str, int]] = []
        self.steps: list[str] = []
        self.endpoints: Mapping[str, Endpoint] = {}
        self.known = asyncio.Event()
        self.known.set()

    def _answer(self, api: str, version: int) -> Any:
        self.asked.append((api, version))
        return message(f"{api}Response")()

    async def vote(self, request: wire.VoteRequest, version: int) -> wire.VoteResponse:
        return self._answer("Vote", version)  # type: ignore[no-any-return]

    async def begin_epoch(self, request: wire.BeginQuorumEpochRequest, version: int) -> wire.BeginQuorumEpochResponse:
        return self._answer("BeginQuorumEpoch", version)  # type: ignore[no-any-return]

    async def end_epoch(self, request: wire.EndQuorumEpochRequest, version: int) -> wire.EndQuorumEpochResponse:
        return self._answer("EndQuorumEpoch", version)  # type: ignore[no-any-return]

    async def fetch(self, request: wire.FetchRequest, version: int) -> wire.FetchResponse:
        return self._answer("Fetch", version)  # type: ignore[no-any-return]

    async def fetch_snapshot(self, request: wire.FetchSnapshotRequest, version: int) -> wire.FetchSnapshotResponse:
        return self._answer("FetchSnapshot", version)  # type: ignore[no-any-return]

    async def describe(self, request: wire.DescribeQuorumRequest, version: int) -> wire.DescribeQuorumResponse:
        return self._answer("DescribeQuorum", version)  # type: ignore[no-any-return]

    async def add_voter(self, request: wire.AddRaftVoterRequest, version: int) -> wire.AddRaftVoterResponse:
        return self._answer("AddRaftVoter", version)  # type: ignore[no-any-return]

    async def remove_voter(self, request: wire.RemoveRaftVoterRequest, version: int) -> wire.RemoveRaftVoterResponse:
        return self._answer("RemoveRaftVoter", version)  # type: ignore[no-any-return]

    async def update_voter(self, request: wire.UpdateRaftVoterRequest, version: int) -> wire.UpdateRaftVoterResponse:
        return self._answer("UpdateRaftVoter", version)  # type: ignore[no-any-return]

    async def start(self, endpoints: Mapping[str, Endpoint]) -> None:
        self.steps.append("start")
        self.endpoints = endpoints

    async def caught_up(self) -> None:
        await self.known.wait()

    async def leave(self) -> None:
        self.steps.append("leave")

    async def close(self) -> None:
        self.steps.append("close")

    def problems(self) -> Iterable[Any]:
        return ()

    def figures(self) -> Mapping[str, float]:
        return {"kbroker_metadata_leader": float(self.leader_id)}

    def counters(self) -> Mapping[tuple[str, ...], Sequence[float]]:
        return {}


class StandInController(Controller):
    """A controller that takes all, while its node's replica leads."""

    def __init__(self, replica: StandInReplica) -> None:
        self.replica = replica
        self.asked: list[tuple[str, Any]] = []
        self.failure: Exception | None = None
        self.registered: Callable[[wire.ControllerRegistrationRequest], object] | None = None

    def _take(self, what: str, request: Any) -> None:
        if self.replica.leader_id != self.replica.parts.config.node_id:
            raise wrong_controller(self.replica.leader_id)
        if self.failure is not None:
            raise self.failure
        # Handlers free what they have asked with.
        self.asked.append((what, list(request) if isinstance(request, list) else request))

    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, TopicOutcome]:
        raise NotImplementedError

    async def ensure_internal_topic(self, name: str) -> Any:
        raise NotImplementedError

    async def report_replicas(self, broker: Any, report: Any) -> None:
        raise NotImplementedError

    async def controlled_shutdown(self, broker: Any) -> Any:
        raise NotImplementedError

    async def alter_partitions(self, broker: Any, changes: Sequence[Any]) -> list[PartitionOutcome]:
        self._take("alter_partitions", changes)
        return [PartitionOutcome(each.partition) for each in changes]

    async def allocate_producer_ids(self, broker: Any) -> ProducerIdBlock:
        self._take("allocate_producer_ids", broker)
        return ProducerIdBlock(1000, 1000)

    async def create_topics(self, requests: Any, validate_only: bool = False, quota: Any = None) -> list[TopicOutcome]:
        self._take("create_topics", requests)
        return [TopicOutcome(each.name) for each in requests]

    async def create_partitions(
        self, requests: Any, validate_only: bool = False, quota: Any = None
    ) -> list[TopicOutcome]:
        self._take("create_partitions", requests)
        return [TopicOutcome(each.name) for each in requests]

    async def delete_topics(self, topic_ids: Any, quota: Any = None) -> list[TopicOutcome]:
        self._take("delete_topics", topic_ids)
        return []

    async def alter_configs(self, alterations: Any, validate_only: bool = False) -> list[Any]:
        self._take("alter_configs", alterations)
        return [None] * len(alterations)

    async def alter_client_quotas(self, alterations: Any, validate_only: bool = False) -> dict[Any, Any]:
        self._take("alter_client_quotas", alterations)
        return {each.entity: None for each in alterations}

    async def alter_security(self, change: Any) -> Any:
        self._take("alter_security", change)
        return ()

    async def elect_leaders(self, election: Any, partitions: Any) -> list[PartitionOutcome]:
        self._take("elect_leaders", partitions)
        return []

    async def alter_reassignments(
        self, reassignments: Any, allow_replication_factor_change: bool = True
    ) -> list[PartitionOutcome]:
        self._take("alter_reassignments", reassignments)
        return [PartitionOutcome(each.partition) for each in reassignments]

    def image(self) -> ClusterImage:
        return self.replica.parts.metadata.image

    async def unregister_broker(self, node_id: int) -> None:
        self._take("unregister_broker", node_id)

    async def update_features(self, updates: Any, validate_only: bool = False) -> None:
        self._take("update_features", updates)

    # Lives

    async def register_broker(self, request: wire.BrokerRegistrationRequest) -> wire.BrokerRegistrationResponse:
        self._take("register_broker", request)
        return wire.BrokerRegistrationResponse(broker_epoch=7)

    async def heartbeat(self, request: wire.BrokerHeartbeatRequest) -> wire.BrokerHeartbeatResponse:
        self._take("heartbeat", request)
        return wire.BrokerHeartbeatResponse(is_caught_up=True)

    async def assign_directories(self, request: wire.AssignReplicasToDirsRequest) -> wire.AssignReplicasToDirsResponse:
        self._take("assign_directories", request)
        return wire.AssignReplicasToDirsResponse()

    async def register_controller(
        self, request: wire.ControllerRegistrationRequest
    ) -> wire.ControllerRegistrationResponse:
        self._take("register_controller", request)
        if self.registered is not None:
            self.registered(request)
        return wire.ControllerRegistrationResponse()


class ControllerBench:
    """A controller's node over a directory, with stand-ins."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        formats: bool = True,
        node_id: int = NODE_ID,
    ) -> None:
        self.directory = directory / "metadata"
        self.directory.mkdir(exist_ok=True)
        if formats:
            meta = MetaProperties(CLUSTER_ID, node_id, random_uuid())
            (self.directory / "meta.properties").write_bytes(encode_meta_properties(meta))
        values: dict[str, object] = {
            "process.roles": "controller",
            "node.id": node_id,
            "controller.quorum.voters": f"{node_id}@127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://127.0.0.1:0",
            "log.dirs": str(self.directory),
            "metrics.listener": "none",
            **(settings or {}),
        }
        self.config = BrokerConfig.from_mapping(values)
        self.stopping = asyncio.Event()
        self.node = ControllerNode(
            self.config,
            asyncio.get_running_loop(),
            self.stopping,
            make_replica=self._make_replica,
            make_controller=self._make_controller,
        )

    def _make_replica(self, parts: ReplicaParts) -> StandInReplica:
        self.replica = StandInReplica(parts)
        return self.replica

    def _make_controller(self, parts: ReplicaParts, replica: Any, settings: BrokerSettings) -> ActiveController:
        found = self.controller = StandInController(replica)
        return ActiveController(found, found, found, lambda: self.replica.leader_id == self.config.node_id)

    async def ask(
        self, request: Any, version: int, *, frames: Sequence[bytes] = (), client_id: str | None = "test"
    ) -> Any:
        """The answer to a request on a connection of its own, behind `frames`; EOFError where it is hung up on."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.node.node.listeners.all[0].port)
        try:
            for each in frames:
                writer.write(each)
                await _frame(reader)
            writer.write(encode_request(request.api_key, version, 5, client_id, request))
            return decode_response(response_message(request.api_key), version, await _frame(reader))[1]
        finally:
            writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 10))
    return await reader.readexactly(size)


@contextlib.asynccontextmanager
async def running(directory: Path, settings: Mapping[str, object] | None = None) -> AsyncIterator[ControllerBench]:
    """A node that is ready."""
    bench = ControllerBench(directory, settings)
    await bench.node.start()
    try:
        yield bench
    finally:
        await bench.node.stop()
