"""How a node makes itself known to the leader of its quorum (KIP-853).

    the leader                                             its own entry in the log, when it begins to lead and each
                                                           fetch timeout (`VoterChanges.keep_own`)
    a voter whose entry in the log is not what it is now   UpdateRaftVoter, each fetch timeout
    a voter while kraft.version is 0                       UpdateRaftVoter, once to each new leader
    an observer that may join by itself                    AddRaftVoter, each fetch timeout; where its id is a voter
                                                           with another directory, RemoveRaftVoter of that one first

Joining by itself needs `controller.quorum.auto.join.enable`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.cluster.client import NodeClient, NodeError, UnsupportedVersionError
from kbroker.cluster.kraft.log_questions import raft_client
from kbroker.cluster.raft.election import RaftState
from kbroker.cluster.raft.voter_set import DYNAMIC, KRAFT_VERSIONS, Voter
from kbroker.outage import Outage
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.cluster.raft.replica import RaftReplica
    from kbroker.metadata.image import Endpoint

logger = logging.getLogger("kbroker.cluster")


class OwnVoter:
    """See the module.  `start` and `close` once each.  `client`: the connection to the leader."""

    def __init__(self, replica: RaftReplica, keep_own: Callable[[], None], *, joins: bool) -> None:
        self._replica = replica
        self._keep_own = keep_own
        self._joins = joins
        self._said_in = -1
        self._task: asyncio.Task[None] | None = None
        parts = replica.parts
        self._outage = Outage(logger, now=parts.loop.time)
        settings = raft_client(replica.me.node_id, parts.settings)
        self.client = NodeClient(parts.loop, parts.transport, self._leader, settings, parts.rng)

    def start(self) -> None:
        """Look each fetch timeout."""
        self._replica.on_lead(lambda _: self._keep_own(), lambda: None)
        self._task = self._replica.parts.loop.create_task(self._run())

    async def close(self) -> None:
        """Ask nothing any more."""
        task, self._task = self._task, None  # It keeps how it ended, and with that this.
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.client.close()

    def _leader(self) -> Endpoint | None:
        return self._replica.endpoint_of(self._replica.leader_id)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._replica.parts.timing.fetch)
            self._keep_own()
            if self._replica.machine.state is not RaftState.FOLLOWER:
                continue
            try:
                await self._look()
            except UnsupportedVersionError:
                self._said_in = self._replica.machine.epoch  # A leader of Kafka 3.9 with kraft.version 0.
            except (NodeError, ValueError) as error:
                self._outage.failed("the leader of the quorum does not hear of this node: %s", error)

    async def _look(self) -> None:
        """Say what the leader does not know of this node yet."""
        replica = self._replica
        own = Voter(replica.me, dict(replica.parts.endpoints), KRAFT_VERSIONS)
        known = replica.history.last.by_id.get(replica.me.node_id)
        if replica.machine.is_voter:
            is_static = replica.history.kraft_version < DYNAMIC
            if (is_static and self._said_in != replica.machine.epoch) or (not is_static and known != own):
                await self._update(own)
        elif self._joins and replica.history.kraft_version >= DYNAMIC:
            if known is not None:
                await self._remove(known)
            else:
                await self._add(own)

    async def _update(self, own: Voter) -> None:
        replica, request = self._replica, wire.UpdateRaftVoterRequest
        feature = request.KRaftVersionFeature()
        feature.min_supported_version, feature.max_supported_version = own.versions
        epoch = replica.machine.epoch
        answer = await self.client.ask(
            wire.UpdateRaftVoterResponse,
            request(
                cluster_id=replica.cluster_id,
                current_leader_epoch=epoch,
                voter_id=own.key.node_id,
                voter_directory_id=own.key.directory_id,
                listeners=[request.Listener(name=name, host=at.host, port=at.port) for name, at in _named(own)],
                kraft_version_feature=feature,
            ),
        )
        self._answered("UpdateRaftVoter", answer.error_code, None)
        if not answer.error_code:
            self._said_in = epoch

    async def _add(self, own: Voter) -> None:
        request = wire.AddRaftVoterRequest
        made = request(
            cluster_id=self._replica.cluster_id,
            timeout_ms=int(self._replica.parts.settings.request_seconds * 1000),
            voter_id=own.key.node_id,
            voter_directory_id=own.key.directory_id,
            listeners=[request.Listener(name=name, host=at.host, port=at.port) for name, at in _named(own)],
            ack_when_committed=False,
        )
        answer = await self.client.ask(wire.AddRaftVoterResponse, made)
        self._answered("AddRaftVoter", answer.error_code, answer.error_message)

    async def _remove(self, known: Voter) -> None:
        request = wire.RemoveRaftVoterRequest(
            cluster_id=self._replica.cluster_id,
            voter_id=known.key.node_id,
            voter_directory_id=known.key.directory_id,
        )
        answer = await self.client.ask(wire.RemoveRaftVoterResponse, request)
        self._answered("RemoveRaftVoter", answer.error_code, answer.error_message)

    def _answered(self, what: str, code: int, text: str | None) -> None:
        if code:
            self._outage.failed("the leader of the quorum answers %s of this node with error %d: %s", what, code, text)
        else:
            self._outage.over("the leader of the quorum has heard of this node")


def _named(own: Voter) -> list[tuple[str, Endpoint]]:
    return list(own.endpoints.items())
