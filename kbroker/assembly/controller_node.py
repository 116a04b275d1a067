"""A process with the controller role alone (`process.roles=controller`).

It is a `Node` with a `ControllerPart`, without logs of topics, replicas of partitions and coordinators.

Start: lock the directory of the metadata log, make the replica and the controller, bind the listeners, take part in the
quorum, serve.  The node is ready when it has applied what was committed at its start, which takes a leader.

Stop: let another node lead, while votes and fetches of this one are still answered; then as any node.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker import __version__
from kbroker._fast.net.socket_part import PlainSocket
from kbroker.assembly.controller_part import ControllerPart
from kbroker.assembly.kafka_figures import node_counters, node_values
from kbroker.assembly.node import Node
from kbroker.assembly.quorum_node import controller_of, replica_of
from kbroker.assembly.security_figures import security_figures
from kbroker.cluster.member import StartInterruptedError
from kbroker.metrics.kafka_sources import KafkaFigures
from kbroker.metrics.readiness import ReadyState
from kbroker.metrics.recent import SAMPLE_SECONDS, Recent
from kbroker.metrics.sources import Sources
from kbroker.protocol.api import ApiKey
from kbroker.security.http_access import http_access
from kbroker.security.openness import openness, warnings_of_controllers
from kbroker.security.sasl.plain_logins import PlainLogins
from kbroker.storage.directories.log_dirs import LogDir, LogDirError
from kbroker.storage.files.filesystem import SYSTEM_FILES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kbroker._fast.base.slices import Pace
    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart
    from kbroker.assembly.quorum import MakeController, MakeReplica
    from kbroker.config import BrokerConfig
    from kbroker.metrics.families import Values
    from kbroker.metrics.recent import Counters
    from kbroker.storage.files.filesystem import FileSystem

logger = logging.getLogger("kbroker.broker")


class ControllerNode:
    """One running controller.  `start` and `stop` are called once each, on the loop."""

    is_judging = False
    """Whether a thread still works for a client that is gone: a controller has none."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        stopping: asyncio.Event | None = None,
        *,
        make_replica: MakeReplica = replica_of,
        make_controller: MakeController = controller_of,
        make_socket: Callable[[Connection], SocketPart] = PlainSocket,
        files: FileSystem = SYSTEM_FILES,
    ) -> None:
        """`make_socket` is for connections that are not TCP's.  ValueError where settings name no quorum."""
        self.config = config
        self.node = Node(config, loop, stopping, lambda: self.part.cache.image.security, make_socket)
        self.part = ControllerPart(config, self.node, make_replica, make_controller, files)
        self.readiness = self.node.readiness
        self._directory = LogDir(files, config.get("metadata.log.dir") or config.log_dirs[0])

    @property
    def directories(self) -> list[str]:
        """The paths of what it keeps data in."""
        return [self._directory.path]

    async def start(self) -> None:
        """Bring everything up; a part's own error when it cannot be.

        A signal ends a start that waits for a leader, and leaves all for `stop`.
        """
        node, part = self.node, self.part
        part.prepare(self._open_directory(), self._directory)
        part.settings.subscribe(node.follow)
        await self._start_metrics()
        await node.sasl.start()
        node.security.describe()
        node.schedule(lambda: part.settings.config)
        await part.begin()
        self._tell_openness()
        try:
            await part.caught_up()
        except StartInterruptedError:
            return  # All that `stop` ends is there.
        self.readiness.move(ReadyState.READY)

    def _open_directory(self) -> str:
        """Lock the directory of the metadata log; the cluster's id.  LogDirError."""
        directory = self._directory
        directory.open()
        if directory.meta is None or not directory.meta.cluster_id:
            raise LogDirError(
                f"{directory.path} does not say which cluster this controller belongs to; format it with the id that "
                "all nodes of the cluster have: kbroker format --cluster-id ID server.properties"
            )
        directory.bind(directory.meta.cluster_id, self.config.node_id)
        return directory.meta.cluster_id

    def _tell_openness(self) -> None:
        """Log what is open to whom, and warn where any host may change the quorum."""
        for each in openness(self.config):
            logger.info("%s", each)
        for text in warnings_of_controllers(self.config):
            logger.warning("%s", text)

    # Metrics

    async def _start_metrics(self) -> None:
        node = self.node
        node.loop_delay.start(node.loop)
        recent = Recent(self._counters, node.clock.monotonic)
        node.tasks.add("read counters for rates", SAMPLE_SECONDS * 1000, recent.sample, 0)
        sources = Sources(
            version=__version__,
            node_id=self.config.node_id,
            cluster_id=self.part.cache.image.cluster_id,
            requests=node.stats,
            api_name=_api_name,
            loop_delay=node.loop_delay,
            quotas=self.part.quotas.rows,
            connections=node.listeners.figures,
            counted=self._figures,
            gathered=self._gathered,
            kafka=self._kafka,
            recent=recent,
            slices=node.slices,
        )
        is_plain = PlainLogins(lambda: self.part.settings.config).accepts
        access = http_access(self.config, lambda: self.part.cache.image.security.scram, self.part.authorizer, is_plain)
        await node.start_metrics(self.config.get("metrics.listener"), sources, {}, {}, access, {})

    def _figures(self) -> Values:
        metadata = self.part.metadata
        lag_ms = max(0, self.node.clock.now_ms() - metadata.applied_ms) if metadata.applied_ms >= 0 else 0
        return {
            "kbroker_metadata_applied_offset": metadata.applied_offset,
            "kbroker_metadata_applied_lag_seconds": lag_ms / 1000,
        }

    async def _gathered(self, pace: Pace) -> Values:
        node, acls = self.node, len(self.part.cache.image.security.acls)
        denials = self.part.quotas.gatekeeper.denials
        return {
            **await self.part.figures(pace),
            **security_figures(node.security, node.sasl, node.clock, acls, denials),
        }

    async def _kafka(self, pace: Pace) -> KafkaFigures:
        return KafkaFigures(values=await node_values(self.readiness.state, self.node.listeners, pace))

    def _counters(self) -> Counters:
        return {**node_counters(self.node.stats, self.node.listeners), **self.part.counters()}

    # The end

    async def stop(self) -> None:
        """End in order: another node leads before this one answers nothing any more."""
        self.readiness.move(ReadyState.STOPPING)
        await self.part.leave()
        self.node.stop_accepting()
        await self.node.close_connections()
        await self.part.close()
        await self.node.close()
        self._directory.release()

    async def give_up(self) -> None:
        """End a start that failed."""
        self.node.listeners.stop_accepting()
        await self.part.close()
        self._directory.release()


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).message_name
    except ValueError:
        return str(api_key)
