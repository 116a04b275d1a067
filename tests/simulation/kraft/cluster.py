"""Histories of three brokers of a KRaft cluster, whose controllers are the model (`quorum`, `serving`).

Besides what histories of any cluster are judged by,

- every image of a broker holds what is committed below its offset, neither more nor less, nor a part of a batch;
- in the end all brokers have all of it, all replicas are in sync, and the controllers know where each one lies.
"""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING, Protocol

from kbroker.broker import Broker
from kbroker.metadata.metadata_record import MetadataRecord
from kbroker.replication.replica_selector import RACK_AWARE
from kbroker.schemas import wire
from kbroker.storage.directories.log_dirs import META_PROPERTIES, MetaProperties, encode_meta_properties
from kbroker.storage.files.filesystem import SYSTEM_FILES
from kbroker.types import TopicPartition
from tests.cluster.kraft.controllers import VOTERS, endpoint_of
from tests.simulation.broker_settings import SMALL_FETCHES
from tests.simulation.copies import Layout
from tests.simulation.kraft.deciding import ELR
from tests.simulation.kraft.faults import KRaftFaults
from tests.simulation.kraft.quorum import TICK_SECONDS, SimulatedControllers
from tests.simulation.kraft.serving import nodes_of
from tests.simulation.kraft.state import BROKER_RESOURCE, MIN_IN_SYNC, record_of, seen_of
from tests.simulation.loop import Process
from tests.simulation.several import InForce, Several
from tests.simulation.world import Scale

if TYPE_CHECKING:
    from pathlib import Path

    from kbroker.assembly.membership.kraft import KRaftMembership
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.metadata.image import PartitionImage
    from tests.simulation.connection import ModelConnection
    from tests.simulation.kraft.state import MetadataState, Seen, TopicState

# No controller waits until brokers have learnt of what it answers.
KRAFT_SCALE = Scale(nodes=3, requests=400, clients=(8, 60), aborts=0.003, crashes=0.7, forgets_late=30.0)
CLUSTER_ID = "a-simulated-cluster-id"
NOBODY = InForce(-1, -1, [])
SETTLED_WITHIN_SECONDS = 90.0
WITH_RACKS = 0.3
METADATA_LEVEL = 30


class CommittedMetadata(Protocol):
    """What the controllers have committed."""

    state: MetadataState
    seen: dict[int, Seen]
    """What images have below an offset where they may end."""

    @property
    def committed_end(self) -> int:
        """The offset behind the last record."""


class KRaftCluster(Several):
    """Nodes 1 to `scale.nodes`, and controllers."""

    def __init__(self, seed: int, folder: Path, scale: Scale) -> None:
        super().__init__(seed, folder, scale)
        rng = self.rng
        self.session_ms = rng.choice((1_500, 3_000, 6_000))
        self.leaving: set[int] = set()
        self.min_in_sync = rng.choice(("1", "2"))
        self.has_elr = rng.random() < 0.7
        self._idle_seconds = rng.choice((0.5, 0.5, 5.0))
        self._idle_at = 0.0
        self._lag_ms = rng.choice(("500", "5000", "30000"))
        self._snapshot_bytes = rng.choice(("2000", "20000", "20971520"))
        self.controllers = self._make_controllers()
        if rng.random() < WITH_RACKS:
            self.racks = {node: f"rack-{min(node, 2)}" for node in self.nodes}
        self.faults = self._make_faults()
        self.at_end.append(self._settle)
        self._tick()

    def _make_controllers(self) -> CommittedMetadata:
        self.model = SimulatedControllers(
            self.loop,
            random.Random(self.rng.getrandbits(64)),
            self.session_ms / 1000,
            self._first_records(),
            self._changed,
        )
        self.quorum = nodes_of(self.model, self.network)
        return self.model

    def _make_faults(self) -> KRaftFaults:
        return KRaftFaults(self)

    @property
    def controller_names(self) -> list[str]:
        """The processes of the controllers, by the names that the network has for them."""
        return [f"controller-{each}" for each in VOTERS]

    def _first_records(self) -> list[MetadataRecord]:
        levels = {"metadata.version": METADATA_LEVEL}
        if self.has_elr:
            levels[ELR] = 1
        found = [record_of(wire.FeatureLevelRecord(name=name, feature_level=each)) for name, each in levels.items()]
        if self.has_elr:
            value = wire.ConfigRecord(
                resource_type=BROKER_RESOURCE, resource_name="", name=MIN_IN_SYNC, value=self.min_in_sync
            )
            found.append(record_of(value))
        return found

    def settings(self, node: int) -> dict[str, str]:
        values = super().settings(node)
        values |= {
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{endpoint_of(each).host}:{endpoint_of(each).port}" for each in VOTERS
            ),
            "controller.listener.names": "CONTROLLER",
            "broker.session.timeout.ms": str(self.session_ms),
            "broker.heartbeat.interval.ms": str(self.session_ms // 5),
            "metadata.log.max.record.bytes.between.snapshots": self._snapshot_bytes,
            "min.insync.replicas": self.min_in_sync,
            "replica.lag.time.max.ms": self._lag_ms,
        }
        if not self.network.weather.is_wide:
            values |= SMALL_FETCHES
        if self.racks:
            values["broker.rack"], values["replica.selector.class"] = self.racks[node], RACK_AWARE
        return values

    # Controllers

    def _tick(self) -> None:
        controllers, loop = self.model, self.loop
        controllers.look_at_sessions()
        controllers.clear_at_times()
        if loop.time() >= self._idle_at:
            self._idle_at = loop.time() + self._idle_seconds
            controllers.idle()
        for each in self.quorum.values():
            if controllers.nodes[each.node_id].is_up:
                each.look()
        loop.at(loop.now_ns + int(TICK_SECONDS * 1e9), self._tick)

    def _changed(self) -> None:
        for each in getattr(self, "quorum", {}).values():
            if self.model.nodes[each.node_id].is_up:
                each.look()

    # Brokers

    async def connect(self, node: int, name: str, client_id: str, port: int | None = None) -> ModelConnection | None:
        made = await super().connect(node, name, client_id, port)
        process = self.processes.get(node)
        if made is not None and process is not None and not process.serves:
            made.may_be_closed = made.broker_stops = True  # It has been told to stop, and still accepts.
        return made

    async def start(self, node: int) -> None:
        process = self.processes[node] = Process(f"broker-{node}")
        config = self.config(node)
        self._format(node, config.log_dirs)
        self.judge.note("broker %d starts", node)

        async def begin() -> Broker:
            broker = Broker(config, self.loop)
            self._judge_images(node, broker.membership)  # type: ignore[arg-type]
            self.starting[node] = broker
            await broker.start()
            return broker

        self.brokers[node] = await process.call(self.loop.create_task, begin())
        del self.starting[node]
        self.torn.discard(node)
        process.serves = True
        self.watch(node)

    def _format(self, node: int, folders: list[str]) -> None:
        """As an operator does before the first start."""
        for each in folders:
            if not SYSTEM_FILES.exists(f"{each}/{META_PROPERTIES}"):
                SYSTEM_FILES.makedirs(each)
                meta = MetaProperties(CLUSTER_ID, node, self.rng.randbytes(16))
                SYSTEM_FILES.write_atomic(f"{each}/{META_PROPERTIES}", encode_meta_properties(meta))

    def _judge_images(self, node: int, membership: KRaftMembership) -> None:
        make = membership._make_member

        def made(cluster_id: str, previous_epoch: int):  # type: ignore[no-untyped-def]
            member = make(cluster_id, previous_epoch)
            member.metadata.subscribe(lambda: self.judge_image(f"broker {node}", member.metadata))
            return member

        membership._make_member = made

    def judge_image(self, who: str, metadata: ClusterMetadata) -> None:
        """A node has applied records."""
        end = metadata.applied_offset + 1
        committed = self.controllers.seen.get(end)
        if committed is None:
            self.judge.fail(
                f"{who} has applied records up to {end}, where no batch ends that is committed; "
                f"{self.controllers.committed_end} are"
            )
        elif (found := seen_of(metadata.recorded)) != committed:
            self.judge.fail(f"{who} has, by the records up to {end}, {difference(found, committed)}")

    async def stop(self, node: int) -> None:
        """A controlled shutdown."""
        self.judge.note("broker %d stops", node)
        for each in self.connections:
            if each.node == node:
                each.may_be_closed = each.broker_stops = True
        self.states.look()
        self.crashed_at[node] = math.inf  # What it acknowledges until it has stopped is there.
        self.garbage.look()
        self.garbage.broker_goes()
        process, broker = self.processes[node], self.brokers[node]
        process.serves = False
        self.leaving.add(node)
        broker.node.stopping.set()
        # It may come to lead what is made now, until the controllers hear of it.
        await process.call(self.loop.create_task, broker.stop())
        self.states.look()
        del self.brokers[node]
        self.leaving.discard(node)
        self.network.end_process(self.processes.pop(node))
        self.crashed_at[node] = self.stopped_at = self.loop.time()
        self.judge.note("broker %d has stopped", node)

    async def crash(self, node: int) -> None:
        await super().crash(node)
        self.away_at[node] = self.loop.time()

    async def fail_at_times(self) -> None:
        await self.faults.happen()

    async def may_return(self, node: int) -> None:
        """At once: a registration says that a life has not ended in order, and takes the broker out of all ISRs."""

    # What is judged

    def _check(self) -> None:
        if any(self._commits_nothing(*each) for each in self.controllers.state.partitions()):
            # The next leader does not learn what its predecessor had committed before it commits something itself.
            for connection in self.connections:
                connection.nothing_was_answered()
        super()._check()

    def _commits_nothing(self, topic: TopicState, each: PartitionImage) -> bool:
        """Whether too few replicas are in sync for a leader to raise its high watermark (KIP-966)."""
        least = int(topic.configs.get(MIN_IN_SYNC, self.min_in_sync))
        return len(each.isr) < min(least, len(each.replicas))

    def in_force(self, topic: str, number: int) -> InForce:
        found = self.controllers.state.topic(topic)
        row = None if found is None else found.partitions.get(number)
        return NOBODY if row is None else InForce(row.leader, row.leader_epoch, list(row.isr))

    def isrs(self) -> list[list[int]]:
        return [list(each.isr) for _, each in self.controllers.state.partitions()]

    def layouts_version(self) -> object:
        return self.controllers.committed_end

    def layouts(self) -> dict[tuple[str, bytes, int], Layout]:
        found = {}
        for topic, row in self.controllers.state.partitions():
            least = int(topic.configs.get(MIN_IN_SYNC, self.min_in_sync))
            key = (topic.name, topic.topic_id, row.partition)
            found[key] = Layout(row.replicas, row.adding_replicas, row.isr, least, row.isr)
        return found

    def is_there(self, node: int) -> bool:
        member = self.controllers.state.members.get(node)
        is_live = member is not None and not member.is_fenced
        return node in self.brokers and node not in self.leaving and self.processes[node].runs and is_live

    async def _settle(self) -> None:
        """All brokers come to know all that is committed, and all replicas are in sync."""
        until = self.loop.time() + SETTLED_WITHIN_SECONDS
        while (wrong := self._unsettled()) is not None:
            if self.loop.time() > until:
                self.judge.fail(f"the cluster does not settle: {wrong}")
            await asyncio.sleep(0.05)

    def _unsettled(self) -> str | None:
        state = self.controllers.state
        away = [node for node in self.nodes if node not in state.alive()]
        if away:
            return f"the controllers take {away} for gone"
        for topic, each in state.partitions():
            if each.leader < 0 or set(each.isr) != set(each.replicas):
                return f"{topic.name}-{each.partition} is {each}"
            for node, told in zip(each.replicas, each.directories, strict=True):
                if told != self._directory_of(node, TopicPartition(topic.name, each.partition)):
                    return f"the controllers take {topic.name}-{each.partition} of broker {node} to be elsewhere"
        for node in self.nodes:
            if seen_of(self.brokers[node].cache.image) != state.seen():
                return f"broker {node} has {difference(seen_of(self.brokers[node].cache.image), state.seen())}"
        return None

    def _directory_of(self, node: int, name: TopicPartition) -> bytes | None:
        manager = self.brokers[node].log_manager
        log = manager.get_log(name)
        ids = {each.path: each.meta.directory_id for each in manager.online_directories() if each.meta is not None}
        return None if log is None else ids.get(log.parent)


def difference(found: tuple[dict, ...], due: tuple[dict, ...]) -> str:  # type: ignore[type-arg]
    """What differs between what is seen and what is due."""
    told = []
    for here, there in zip(found, due, strict=True):
        differing = [key for key in {**here, **there} if here.get(key) != there.get(key)]
        told += [f"{key}: {here.get(key)}, not {there.get(key)}" for key in differing]
    return "; ".join(told)


__all__ = ["KRAFT_SCALE", "KRaftCluster"]
