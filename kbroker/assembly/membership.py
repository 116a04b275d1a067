"""The parts of a broker that is a member of a cluster: fetchers, ISR changes, what carries out a controller's word."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.assembly.member_choice import inter_broker_listener
from kbroker.cluster.client import ClientSettings
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.controller_channel import ControllerChannel
from kbroker.cluster.node_clients import NodeClients
from kbroker.cluster.protocol_version import protocol_version
from kbroker.cluster.requests import BrokerEpoch
from kbroker.errors import KafkaError
from kbroker.metadata.image import Endpoint
from kbroker.periodic import PeriodicTask
from kbroker.replication.fetcher_manager import FetcherManager, fetcher_settings
from kbroker.replication.handover import Handover
from kbroker.replication.isr_manager import IsrManager
from kbroker.replication.leader_and_isr import ControllerRequests
from kbroker.replication.marker_sender import MarkerSender
from kbroker.replication.replica_selector import replica_selector
from kbroker.replication.replication_traffic import ReplicationTraffic
from kbroker.replication.stray_replicas import StrayReplicas, stray_replicas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker._fast.base.slices import Slices
    from kbroker.clock import Clock
    from kbroker.cluster.controller import Controller
    from kbroker.cluster.member import Member
    from kbroker.cluster.requests import ReplicaReport
    from kbroker.config import BrokerConfig
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import BrokerImage
    from kbroker.metrics.readiness import Problem
    from kbroker.network.listener import Listener
    from kbroker.quotas.host_names import HostNames
    from kbroker.replication.replica_manager import ReplicaManager
    from kbroker.replication.transaction_markers import MarkerWriter
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.cluster")

STRAYS_INTERVAL_MS = 60_000
LOOK_MS = 1000


class Membership:
    """Made before the parts that serve clients; see `attach`."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        cache: MetadataCache,
        member: Member,
        slices: Slices,
        settings: BrokerSettings,
        hosts: HostNames,
        workers_listener: str | None = None,
    ) -> None:
        """`workers_listener`: the name that workers of a host reach each other by."""
        self._config = config
        self._workers_listener = workers_listener
        self._loop = loop
        self._clock = clock
        self._cache = cache
        self._slices = slices
        self._settings = settings
        self._listener = workers_listener or inter_broker_listener(config)
        self._protocol = protocol_version(config.get("inter.broker.protocol.version"))
        self.member = member
        self._transport = TcpTransport(loop, config.get("replica.socket.receive.buffer.bytes"))
        self.channel = ControllerChannel(
            loop,
            TcpTransport(loop),
            cache,
            lambda: self._listener,
            config.node_id,
            self._protocol,
            config.get("controller.socket.timeout.ms") / 1000,
        )
        self._all_clients: list[NodeClients] = []
        self._handover: Handover | None = None
        self._markers: MarkerSender | None = None
        self.controller: Controller = member.controller(cache, self.channel, settings, hosts)

    def broker(self) -> BrokerEpoch:
        """This broker, with its epoch by now."""
        return BrokerEpoch(self._config.node_id, self.member.epoch)

    def shown(self, broker: BrokerImage, listeners: Iterable[Listener]) -> BrokerImage:
        """This broker as the others are to know it: with the ports that it has by now."""
        ports = {each.name: each.port for each in listeners}
        endpoints = {
            name: endpoint if endpoint.port else Endpoint(endpoint.host, ports[name])
            for name, endpoint in broker.endpoints.items()
        }
        broker = replace(broker, endpoints=endpoints)
        if self._workers_listener is None:
            return broker
        from kbroker.cluster.workers.member import with_near_endpoint

        near = inter_broker_listener(self._config)
        host = next(each.host for each in self._config.listeners if each.name == near)
        return with_near_endpoint(broker, ports[near], host)

    def attach(self, replicas: ReplicaManager) -> ControllerRequests | None:
        """Let `replicas` be what the controller says.  What carries out its requests; None where it publishes images
        (`follow_images`)."""
        config = self._config
        self.isr = IsrManager(
            self._loop,
            self._clock,
            self._cache,
            self.controller,
            self.broker,
            lambda: config.get("replica.lag.time.max.ms") / 1000,
        )
        self.traffic = ReplicationTraffic(self._settings.config, self._clock.monotonic)
        settings = fetcher_settings(config, self._protocol)
        self.fetchers = FetcherManager(
            self._loop,
            self._transport,
            self._cache,
            lambda: self._listener,
            lambda: settings,
            lambda: self.member.epoch,
            count=self._settings.config.get("num.replica.fetchers"),
            socket_seconds=config.get("replica.socket.timeout.ms") / 1000,
            pace=self._slices.pace,
            traffic=self.traffic,
        )
        self._replicas = replicas
        self._strays = StrayReplicas(replicas.log_manager.set_aside)
        replicas.traffic = self.traffic
        replicas.selector = replica_selector(config.get("replica.selector.class"), lambda: self._cache.image)
        replicas.isr_changes = self.isr
        replicas.exists = self._exists
        if self._workers_listener is not None:
            replicas.fetchers = self.fetchers
            return None
        self._cache.subscribe(replicas.note_topics)
        clients = self._clients(ClientSettings(str(config.node_id), negotiates=True, request_seconds=self._seconds()))
        self._handover = Handover(replicas, self, clients, self._clock.monotonic)
        return ControllerRequests(
            config.node_id,
            self._cache,
            replicas,
            self.fetchers,
            lambda: self.member.epoch,
            self.member.topic_configs,
            self.member.prepare,
        )

    def follow(self, config: BrokerConfig) -> None:
        """A broker setting was changed at run time."""
        self.fetchers.change_count(config.get("num.replica.fetchers"))
        self.traffic.follow(config)

    def follow_images(self, replicas: ReplicaManager) -> None:
        """Let `replicas` be what the image says, and each one that comes."""
        replicas.apply_image(self._cache.image)
        self._cache.subscribe(replicas.apply)

    def lost(self, names: Iterable[TopicPartition]) -> None:
        """The disks of these partitions have failed."""
        for name in names:
            self.fetchers.forget(name)
            self._replicas.lose(name)

    def send_markers(self, writer: MarkerWriter) -> MarkerSender:
        """What writes markers into partitions of all brokers."""
        node_id = self._config.node_id
        clients = self._clients(ClientSettings(f"broker-{node_id}-txn-marker-sender", request_seconds=self._seconds()))
        self._markers = MarkerSender(self._loop, node_id, writer, self._cache, clients)
        return self._markers

    def coordinators_elsewhere(self) -> NodeClients:
        """How partition leaders ask transaction coordinators on other brokers."""
        client_id = f"AddPartitionsManager-client-{self._config.node_id}"
        return self._clients(ClientSettings(client_id, negotiates=True, request_seconds=self._seconds()))

    def _seconds(self) -> float:
        return float(self._config.get("request.timeout.ms") / 1000)

    def _clients(self, settings: ClientSettings) -> NodeClients:
        clients = NodeClients(self._loop, TcpTransport(self._loop), self._cache, lambda: self._listener, settings)
        self._all_clients.append(clients)
        return clients

    def _exists(self, topic: str, index: int) -> bool:
        """Whether the cluster has the partition.  Before a controller has said what there is it may: clients must not
        take it for deleted."""
        if not self._cache.is_filled:
            return True
        known = self._cache.topic(topic)
        return known is not None and 0 <= index < len(known.partitions)

    def periodic_tasks(self) -> list[PeriodicTask]:
        """What the loop runs from time to time."""
        every = max(1, self._config.get("replica.lag.time.max.ms") // 2)
        return [
            PeriodicTask("drop replicas that lag", every, self._drop_lagging),
            PeriodicTask("set stray replicas aside", STRAYS_INTERVAL_MS, self._look_for_strays),
            *([] if self._handover is None else [PeriodicTask("hand leaders over", LOOK_MS, self._handover.look)]),
        ]

    # What a handover needs

    @property
    def node_id(self) -> int:
        """This broker's id."""
        return self._config.node_id

    def is_alive(self, node_id: int) -> bool:
        """Whether a broker is there."""
        return self.isr.is_eligible(node_id)

    async def report(self, report: ReplicaReport) -> None:
        """Tell the controller of replicas here."""
        await self.controller.report_replicas(self.broker(), report)

    def renew(self) -> None:
        """Register anew."""
        self.member.renew()

    def problems(self) -> Iterable[Problem]:
        """What was handed over."""
        return () if self._handover is None else self._handover.problems()

    def _drop_lagging(self) -> None:
        self.isr.drop_lagging(list(self._replicas))

    def _look_for_strays(self) -> None:
        replicas, logs = self._replicas, self._replicas.log_manager

        def is_hosted(name: TopicPartition) -> bool:
            return replicas.hosted(name) is not None or replicas.is_offline(name) or name in replicas.given_up

        self._strays.look(stray_replicas(self._cache.image, self._config.node_id, logs.logs, is_hosted))

    async def leave(self) -> None:
        """Have the partitions led by others, before the broker stops serving."""
        config = self._config
        if not config.get("controlled.shutdown.enable") or self.member.epoch < 0:
            return
        for attempt in range(config.get("controlled.shutdown.max.retries")):
            if attempt:
                await asyncio.sleep(config.get("controlled.shutdown.retry.backoff.ms") / 1000)
            try:
                remaining = await self.controller.controlled_shutdown(self.broker())
            except KafkaError as error:
                logger.warning("the controller cannot move this broker's leaders: %s", error)
                continue
            if not remaining:
                return
            if self._is_last():
                logger.info("%d partitions go offline: no other broker of the cluster is there", len(remaining))
                return
            logger.info("%d partitions are still led by this broker", len(remaining))
        logger.warning("the broker stops with partitions that no other broker leads yet")

    def _is_last(self) -> bool:
        """Whether there is no other broker that could lead."""
        return not any(each.node_id != self._config.node_id for each in self._cache.image.alive_brokers())

    async def close(self) -> None:
        """Copy and ask nothing any more, and leave the cluster."""
        self.fetchers.close()
        self.isr.close()
        if self._markers is not None:
            self._markers.close()
        for clients in self._all_clients:
            clients.close()
        await self.member.close()
        self.channel.close()
