"""The replica of the metadata log and the controller of a node with the controller role, as production has them.

While the replica leads, the controller decides; what it decides goes into the log, and comes back to it, committed,
through the image.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from kbroker.assembly.quorum import ActiveController
from kbroker.assembly.quorum_figures import (
    controller_counters,
    controller_figures,
    replica_counters,
    replica_figures,
)
from kbroker.cluster.controller.active import ActiveController as Deciding
from kbroker.cluster.controller.chores import Chores
from kbroker.cluster.controller.election_counts import ElectionCounts
from kbroker.cluster.kraft.bootstrap import first_records
from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
from kbroker.cluster.raft.answers import RaftAnswers
from kbroker.cluster.raft.election import RaftTiming, ReplicaKey
from kbroker.cluster.raft.own_log import OwnLog
from kbroker.cluster.raft.own_voter import OwnVoter
from kbroker.cluster.raft.replica import RaftReplica
from kbroker.cluster.raft.replica import ReplicaParts as RaftParts
from kbroker.errors import NotControllerError
from kbroker.metadata.features import METADATA_VERSION
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.metrics.readiness import Problem
from kbroker.storage.directories.log_dirs import LogDirError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from kbroker.assembly.quorum import Replica, ReplicaParts
    from kbroker.cluster.kraft.settings import QuorumSettings
    from kbroker.cluster.raft.leading import Leading
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.image import Endpoint
    from kbroker.metadata.metadata_record import MetadataRecord
    from kbroker.metrics.families import Values
    from kbroker.metrics.recent import Counters

logger = logging.getLogger("kbroker.cluster")


def timing_of(settings: QuorumSettings) -> RaftTiming:
    """The times of a voter."""
    return RaftTiming(
        settings.election_seconds, settings.fetch_seconds, settings.resigned_seconds, settings.backoff_seconds
    )


class NodeReplica(RaftAnswers):
    """See `assembly.quorum.Replica`."""

    def __init__(self, parts: ReplicaParts) -> None:
        meta = parts.directory.meta
        assert meta is not None, "the directory is locked and read"
        self._listens: dict[str, Endpoint] = {}
        self._parts = parts
        raft = RaftParts(
            parts.loop,
            parts.transport,
            parts.settings,
            timing_of(parts.settings),
            MetadataDirectory(parts.files, parts.directory.path, parts.settings.log, parts.clock),
            parts.metadata,
            parts.clock,
            random.Random(),
            self._listens,
        )
        key = ReplicaKey(parts.config.node_id, meta.directory_id)
        self.replica = RaftReplica(raft, key, parts.cluster_id, parts.halt)
        super().__init__(self.replica)
        self._own_voter = OwnVoter(self.replica, self.voters.keep_own, joins=parts.settings.joins)

    async def start(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Read the log and take part in the quorum.  LogDirError."""
        self._listens.update(endpoints)
        try:
            await self.replica.open()
        except MetadataLogError as error:
            raise LogDirError(str(error)) from error
        self.replica.start()
        self._own_voter.start()

    async def caught_up(self) -> None:
        """Return once all that was committed when a leader was first heard is applied."""
        await self.replica.changes.wait_until(self._has_caught_up)

    def _has_caught_up(self) -> bool:
        replica = self.replica
        if replica.leading is not None:
            return replica.leading.is_active
        known = replica.quorum.leader_high_watermark
        return 0 <= known <= replica.applied_end

    async def leave(self) -> None:
        """Lead no more; others are still answered."""
        await self.replica.leave()

    async def close(self) -> None:
        """End."""
        await self._own_voter.close()
        await self.replica.close()

    def own_log(self, near: Endpoint | None) -> OwnLog:
        """The log as a broker in the same process follows it."""
        return OwnLog(self.replica, near)

    def problems(self) -> Iterable[Problem]:
        """What is wrong by now."""
        if self.replica.leader_id < 0:
            yield Problem("the controllers have no leader: a majority of the voters does not answer")

    def figures(self) -> Values:
        """What a scrape shows."""
        observers = self.observer_count if self.replica.machine.progress is not None else None
        clients = [self.replica.questions.client, self._own_voter.client, *self.replica.peers.clients]
        return replica_figures(self.replica, clients, observers)

    def counters(self) -> Counters:
        """What rates are worked out of."""
        return replica_counters(self.replica)


class NodeController:
    """The controller that decides while `replica` leads."""

    def __init__(self, parts: ReplicaParts, replica: NodeReplica, settings: BrokerSettings) -> None:
        self._parts = parts
        self._replica = replica
        self.deciding = Deciding(
            parts.metadata,
            settings,
            parts.config.node_id,
            parts.slices,
            parts.clock.monotonic,
            parts.hosts,
            is_alone=self._is_alone,
            upgrade_quorum=replica.voters.upgrade,
        )
        self._chores = Chores(self.deciding, settings.config, parts.clock)
        self.elections = ElectionCounts()
        self._tasks: set[asyncio.Task[None]] = set()
        self._begin(self._do_chores())
        replica.replica.on_lead(self._lead, self.deciding.resign)

    def is_active(self) -> bool:
        """Whether it decides by now."""
        return self.deciding.is_active

    def figures(self) -> Values:
        """What a scrape shows."""
        return controller_figures(self.deciding, self.elections, self._parts.metadata, self._replica.replica.stats)

    def counters(self) -> Counters:
        """What recent times are worked out of."""
        return controller_counters(self.deciding)

    def _is_alone(self) -> bool:
        """Whether this node is the whole cluster: its one voter and its one broker."""
        node_id, config = self._parts.config.node_id, self._parts.config
        is_sole_voter = self._replica.replica.voter_ids() == [node_id]
        has_others = bool(self._parts.metadata.recorded.brokers.keys() - {node_id})
        return is_sole_voter and not has_others and not config.is_controller_alone

    def _begin(self, running: Coroutine[object, object, None]) -> None:
        task = self._parts.loop.create_task(running)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _lead(self, leading: Leading) -> None:
        self._begin(self._activate(leading))

    async def _activate(self, leading: Leading) -> None:
        try:
            records = await self._first_records()
            if leading.is_over:
                return
            await self.deciding.lead(leading, records)
        except NotControllerError:
            return
        except Exception as error:
            logger.exception("the controller cannot begin to decide")
            self.deciding.error_count += 1
            leading.resign(f"it cannot begin to decide: {error}")

    async def _first_records(self) -> list[MetadataRecord]:
        """Those of a new cluster; none where there is one already."""
        if METADATA_VERSION in self._parts.metadata.recorded.features.chosen:
            return []
        parts = self._parts
        return await parts.loop.run_in_executor(None, first_records, parts.files, parts.directory.path)

    async def _do_chores(self) -> None:
        pause = 0.0
        while True:
            await asyncio.sleep(pause)
            pause = await self._chores.tick()

    def close(self) -> None:
        """End what it does by itself."""
        for task in self._tasks:
            task.cancel()


def replica_of(parts: ReplicaParts) -> NodeReplica:
    """The replica of a node."""
    return NodeReplica(parts)


def controller_of(parts: ReplicaParts, replica: Replica, settings: BrokerSettings) -> ActiveController:
    """The controller of a node with that replica; `settings`: the node's, with what was changed at run time."""
    assert isinstance(replica, NodeReplica), "made by `replica_of`"
    made = NodeController(parts, replica, settings)
    deciding = made.deciding
    return ActiveController(
        deciding,
        deciding,
        deciding,
        made.is_active,
        close=made.close,
        figures=made.figures,
        counters=made.counters,
        on_metadata=made.elections.follow,
    )
