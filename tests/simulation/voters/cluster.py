"""Histories of three brokers under controllers of the product: three nodes beside them, or the brokers themselves.

Besides what histories of a KRaft cluster are judged by (`kraft.cluster`), the model replays what the controllers commit
(`committed`); images of brokers and controllers hold that; when all faults are over, one of them comes to be active.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.broker import Broker
from kbroker.cluster.kraft.bootstrap import (
    BOOTSTRAP_FILE,
    FIRST_VOTERS_FILE,
    bootstrap_checkpoint,
    initial_voters_checkpoint,
)
from kbroker.cluster.raft.election import ReplicaKey
from kbroker.cluster.raft.voter_set import Voter, VoterSet
from kbroker.metadata.image import Endpoint
from kbroker.schemas import wire
from kbroker.storage.directories.log_dirs import (
    CLUSTER_METADATA_DIRECTORY,
    META_PROPERTIES,
    MetaProperties,
    encode_meta_properties,
)
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.cluster.kraft.controllers import VOTERS
from tests.simulation.kraft.cluster import CLUSTER_ID, KRAFT_SCALE, KRaftCluster, difference
from tests.simulation.kraft.deciding import ELR
from tests.simulation.kraft.state import record_of, seen_of
from tests.simulation.leftovers import dispose
from tests.simulation.loop import Process
from tests.simulation.voters.committed import Committed
from tests.simulation.voters.faults import QuorumFaults
from tests.simulation.voters.nodes import ControllerProcess
from tests.simulation.voters.watched import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from kbroker.metadata.metadata_record import MetadataRecord
    from tests.simulation.kraft.cluster import CommittedMetadata
    from tests.simulation.world import Scale

QUORUM_SCALE = replace(KRAFT_SCALE, crashes=0.9)
LISTENER, PORT = "CONTROLLER", 9093
COMBINED, DYNAMIC = 0.25, 0.5
"""The shares of histories in which brokers are the controllers, and in which the log names the voters."""
ACTIVE_WITHIN_SECONDS, CUT_SECONDS = 20.0, 8.0
METADATA_LEVEL = 30
SLOW_PAUSES = 0.0, 0.001, 0.02, 0.3
"""So that clients have something under way while controllers are elected."""


class QuorumCluster(KRaftCluster):
    """Nodes 1 to `scale.nodes`, and controllers; `committed`: what these have committed."""

    def __init__(self, seed: int, folder: Path, scale: Scale) -> None:
        super().__init__(seed, folder, scale)
        rng = self.rng
        self.pauses = rng.choice((self.pauses, SLOW_PAUSES, SLOW_PAUSES))
        self._timing = {
            "controller.quorum.election.timeout.ms": rng.choice(("200", "1000")),
            "controller.quorum.fetch.timeout.ms": rng.choice(("1000", "2000")),  # A fetch waits for half a second.
            "controller.quorum.election.backoff.max.ms": rng.choice(("100", "1000")),
            "controller.quorum.request.timeout.ms": rng.choice(("1000", "2000")),
            "controller.quorum.append.linger.ms": rng.choice(("0", "25")),
            "metadata.max.idle.interval.ms": rng.choice(("500", "500", "5000")),
            "metadata.log.segment.bytes": rng.choice(("8388608", "1073741824")),
            "leader.imbalance.check.interval.seconds": rng.choice(("5", "300")),
        }
        self._retention_bytes = rng.choice(("4000", "104857600"))

    def _make_controllers(self) -> CommittedMetadata:
        rng = self.rng
        self.committed = Committed(self.judge)
        self.is_combined = rng.random() < COMBINED
        self.is_dynamic = rng.random() < DYNAMIC
        self.voter_ids = list(self.nodes) if self.is_combined else list(VOTERS)
        self._directory_ids = {each: rng.randbytes(16) for each in self.voter_ids}
        self.others = {} if self.is_combined else {each: ControllerProcess(self, each) for each in VOTERS}
        """Controllers that are no brokers."""
        self.watches: dict[int, Watch] = {}
        """Of the controllers that are brokers."""
        return self.committed

    def _make_faults(self) -> QuorumFaults:
        return QuorumFaults(self)

    def _tick(self) -> None:
        """Controllers do all by themselves."""

    @property
    def controller_names(self) -> list[str]:
        return [f"broker-{each}" if self.is_combined else f"controller-{each}" for each in self.voter_ids]

    def leader_changes(self) -> None:
        """What brokers have asked of the one before may have been done, and they may ask again."""
        self.controllers_lost_at = max(self.controllers_lost_at, self.loop.time())

    def active(self) -> int | None:
        """The node that decides, in the newest epoch; None where none does."""
        found: list[tuple[int, int]] = []
        for node_id in self.voter_ids:
            watch = self._watch_of(node_id)
            if watch is not None and watch.replica is not None and watch.is_active():
                found.append((watch.replica.replica.machine.epoch, node_id))
        return max(found)[1] if found else None

    def _watch_of(self, node_id: int) -> Watch | None:
        if self.is_combined:
            return self.watches.get(node_id)
        other = self.others[node_id]
        return other.watch if other.is_up else None

    # Settings

    def _address(self, node_id: int) -> Endpoint:
        return Endpoint(f"127.83.74.{node_id % 1000}", PORT)

    def _quorum_settings(self) -> dict[str, str]:
        at = {each: f"{self._address(each).host}:{PORT}" for each in self.voter_ids}
        named = {"controller.listener.names": LISTENER, **self._timing}
        if self.is_dynamic:
            return {**named, "controller.quorum.bootstrap.servers": ",".join(at.values())}
        return {**named, "controller.quorum.voters": ",".join(f"{node_id}@{each}" for node_id, each in at.items())}

    def settings(self, node: int) -> dict[str, str]:
        values = super().settings(node)
        del values["controller.quorum.bootstrap.servers"]
        values |= self._quorum_settings()
        if self.is_combined:
            values["process.roles"] = "broker,controller"
            values["listeners"] += f",{LISTENER}://{self._address(node).host}:{PORT}"
            values["metadata.max.retention.bytes"] = self._retention_bytes
        return values

    def controller_settings(self, node_id: int, folder: str) -> dict[str, str]:
        """Those of a controller that is no broker."""
        return {
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"{LISTENER}://{self._address(node_id).host}:{PORT}",
            "log.dirs": folder,
            "metrics.listener": "none",
            "broker.session.timeout.ms": str(self.session_ms),
            "min.insync.replicas": self.min_in_sync,
            "metadata.log.max.record.bytes.between.snapshots": self._snapshot_bytes,
            "metadata.max.retention.bytes": self._retention_bytes,
            **self._quorum_settings(),
        }

    def _first_records(self) -> list[MetadataRecord]:
        levels = {"metadata.version": METADATA_LEVEL, **({ELR: 1} if self.has_elr else {})}
        return [record_of(wire.FeatureLevelRecord(name=name, feature_level=each)) for name, each in levels.items()]

    def addition(self, node_id: int) -> wire.AddRaftVoterRequest:
        """What makes a controller a voter."""
        at, request = self._address(node_id), wire.AddRaftVoterRequest
        return request(
            cluster_id=None,
            voter_id=node_id,
            voter_directory_id=self._directory_ids[node_id],
            listeners=[request.Listener(name=LISTENER, host=at.host, port=at.port)],
            ack_when_committed=True,
        )

    def format_controller(self, node_id: int, folder: str) -> None:
        """As an operator does before the first start."""
        if SYSTEM_FILES.exists(f"{folder}/{META_PROPERTIES}"):
            return
        place = f"{folder}/{CLUSTER_METADATA_DIRECTORY}"
        SYSTEM_FILES.makedirs(place)
        ids = self._directory_ids
        if self.is_dynamic:
            voters = {
                each: Voter(ReplicaKey(each, ids[each]), {LISTENER: self._address(each)}) for each in self.voter_ids
            }
            made = initial_voters_checkpoint(VoterSet(voters), self.now_ms())
            SYSTEM_FILES.write_atomic(f"{place}/{FIRST_VOTERS_FILE}", made)
        made = bootstrap_checkpoint(self._first_records(), self.now_ms())
        SYSTEM_FILES.write_atomic(f"{folder}/{BOOTSTRAP_FILE}", made)
        meta = encode_meta_properties(MetaProperties(CLUSTER_ID, node_id, ids[node_id]))
        SYSTEM_FILES.write_atomic(f"{folder}/{META_PROPERTIES}", meta)

    def _format(self, node: int, folders: list[str]) -> None:
        if self.is_combined:
            self.format_controller(node, folders[0])
        super()._format(node, folders)

    # Nodes

    async def start_all(self) -> None:
        for each in self.others.values():
            each.start()
        await super().start_all()

    async def start(self, node: int) -> None:
        if not self.is_combined:
            await super().start(node)
            return
        process = self.processes[node] = Process(f"broker-{node}")
        config = self.config(node)
        self._format(node, config.log_dirs)
        self.judge.note("broker %d starts", node)
        watch = self.watches[node] = Watch(self, f"broker {node}")

        async def begin() -> Broker:
            broker = Broker(config, self.loop)
            assert broker.quorum is not None
            broker.quorum._make_replica, broker.quorum._make_controller = watch.make_replica, watch.make_controller
            self.starting[node] = broker
            await broker.start()
            return broker

        self.brokers[node] = await process.call(self.loop.create_task, begin())
        del self.starting[node]
        self.torn.discard(node)
        process.serves = True
        self.watch(node)

    async def crash(self, node: int) -> None:
        watch = self.watches.pop(node, None)
        if watch is not None:
            self.leader_changes()
        await super().crash(node)
        if watch is not None and watch.replica is not None:
            with contextlib.suppress(OSError):
                watch.replica.replica.log.directory.close()

    async def stop(self, node: int) -> None:
        self.leader_changes()
        await super().stop(node)
        self.watches.pop(node, None)

    def dispose(self) -> None:
        """Give back what all nodes hold."""
        for each in self.others.values():
            if each.process is not None:
                each.process.alive = False
            each.dispose()
        for broker in self.starting.values():
            dispose(broker)
        super().dispose()

    def cut_off(self, one: int, other: int) -> None:
        """Not for longer than a client waits: one of them may be the active controller, whom the other one asks."""
        super().cut_off(one, other)
        if self.is_combined:
            self.loop.call_later(CUT_SECONDS, self.network.heal)

    # What is judged

    def _check(self) -> None:
        if self.is_combined and self.network.cut:
            # A broker that does not reach the active controller passes on what it is asked as soon as it does.
            for each in self.connections:
                each.nothing_was_answered()
        super()._check()

    async def _settle(self) -> None:
        until = self.loop.time() + ACTIVE_WITHIN_SECONDS
        while self.active() is None:
            if self.loop.time() > until:
                self.judge.fail(f"no controller is active {ACTIVE_WITHIN_SECONDS:.0f} s after all faults")
            await asyncio.sleep(0.05)
        await super()._settle()

    def _unsettled(self) -> str | None:
        wrong = super()._unsettled()
        for node_id in self.voter_ids:
            watch = self._watch_of(node_id)
            if wrong is not None or watch is None or watch.parts is None:
                return wrong or f"controller {node_id} is not there"
            found = seen_of(watch.parts.metadata.recorded)
            if found != self.committed.state.seen():
                wrong = f"controller {node_id} has {difference(found, self.committed.state.seen())}"
        return wrong


__all__ = ["QUORUM_SCALE", "QuorumCluster"]
