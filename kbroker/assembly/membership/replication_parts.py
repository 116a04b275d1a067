"""What a broker has whose partitions have replicas on other brokers: fetchers, ISR changes, clients of the others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cluster.client import ClientSettings
from kbroker.cluster.controller_channel import ControllerChannel
from kbroker.cluster.controller_client import ControllerByImage
from kbroker.cluster.node_clients import NodeClients
from kbroker.cluster.protocol_version import MetadataProtocol, protocol_version
from kbroker.cluster.requests import BrokerEpoch
from kbroker.periodic import PeriodicTask
from kbroker.replication.fetcher_manager import FetcherManager, FetcherSettingsByVersion
from kbroker.replication.isr_manager import IsrManager
from kbroker.replication.marker_sender import MarkerSender
from kbroker.replication.replica_selector import replica_selector
from kbroker.replication.replication_traffic import ReplicationTraffic
from kbroker.replication.stray_replicas import StrayReplicas, stray_replicas

if TYPE_CHECKING:
    from kbroker.assembly.membership.cluster_membership import BrokerParts, MetadataParts
    from kbroker.cluster.client import Transport
    from kbroker.cluster.controller.interface import BrokerRequests
    from kbroker.cluster.controller_client import ControllerFinder
    from kbroker.config import BrokerConfig
    from kbroker.replication.transaction_markers import MarkerWriter
    from kbroker.types import TopicPartition

STRAYS_INTERVAL_MS = 60_000


class QuorumReach(NamedTuple):
    """How the active controller of a KRaft cluster is reached, and who that is."""

    transport: Transport
    place: ControllerFinder


class ReplicationParts:
    """Made before the controller, which asks over `channel`; `attach` gives the replicas what they need.

    `listener` is the one that brokers reach each other by, `epoch()` this broker's epoch by now.  `quorum` is how the
    controllers of a KRaft cluster are reached: there followers go by the level of the metadata, and all else is
    negotiated.  None: the controller is one of the brokers, which all go by `inter.broker.protocol.version`.
    """

    def __init__(
        self,
        broker: BrokerParts,
        parts: MetadataParts,
        listener: str,
        epoch: Callable[[], int],
        quorum: QuorumReach | None = None,
    ) -> None:
        config = broker.config
        self.node_id = config.node_id
        self._broker = broker
        self._parts = parts
        self._listener = listener
        self._epoch = epoch
        setting = protocol_version(config.get("inter.broker.protocol.version"))
        self._negotiates = quorum is not None
        self._protocol = (lambda: setting) if quorum is None else MetadataProtocol(parts.cache)
        self._transport = broker.outbound.transport(config.get("replica.socket.receive.buffer.bytes"))
        self._all_clients: list[NodeClients] = []
        self._markers: MarkerSender | None = None
        self._strays = StrayReplicas(parts.replicas.log_manager.retire_as_stray)
        self.channel = ControllerChannel(
            broker.loop,
            broker.outbound.transport() if quorum is None else quorum.transport,
            parts.cache,
            ControllerByImage(parts.cache, lambda: listener) if quorum is None else quorum.place,
            config.node_id,
            setting,
            config.get("controller.socket.timeout.ms") / 1000,
        )

    def broker(self) -> BrokerEpoch:
        """This broker, with its epoch by now."""
        return BrokerEpoch(self.node_id, self._epoch())

    def attach(self, controller: BrokerRequests) -> None:
        """Make what copies replicas and proposes ISRs, before the replicas lead or follow anything."""
        broker, parts, config = self._broker, self._parts, self._broker.config
        # Not earlier: only now are the settings known that the cluster keeps for this broker.
        self.traffic = ReplicationTraffic(parts.settings.config, broker.clock.monotonic)
        self.isr = IsrManager(
            broker.loop,
            broker.clock,
            parts.cache,
            controller,
            self.broker,
            lambda: config.get("replica.lag.time.max.ms") / 1000,
        )
        self.fetchers = FetcherManager(
            broker.loop,
            self._transport,
            parts.cache,
            lambda: self._listener,
            FetcherSettingsByVersion(config, self._protocol),
            self._epoch,
            count=parts.settings.config.get("num.replica.fetchers"),
            socket_seconds=config.get("replica.socket.timeout.ms") / 1000,
            pace=broker.slices.pace,
            traffic=self.traffic,
        )
        replicas = parts.replicas
        replicas.traffic = self.traffic
        replicas.selector = replica_selector(config.get("replica.selector.class"), lambda: parts.cache.image)
        replicas.roles.isr_changes = self.isr
        replicas.exists = self._exists

    def follow(self, config: BrokerConfig) -> None:
        """A broker setting was changed at run time."""
        self.fetchers.change_count(config.get("num.replica.fetchers"))
        self.traffic.follow(config)
        self._parts.replicas.roles.reconfigure(self._parts.cache.image.topics)

    def lost(self, names: Collection[TopicPartition]) -> None:
        """The disks of these partitions have failed."""
        for name in names:
            self.fetchers.forget(name)
            self._parts.replicas.roles.lose(name)

    def send_markers(self, writer: MarkerWriter) -> MarkerSender:
        """What writes markers into partitions of all brokers."""
        negotiates = self._negotiates
        clients = self.clients(f"broker-{self.node_id}-txn-marker-sender", negotiates=negotiates)
        self._markers = MarkerSender(
            self._broker.loop, self.node_id, writer, self._parts.cache, clients, negotiates=negotiates
        )
        return self._markers

    def coordinators_elsewhere(self) -> NodeClients:
        """How partition leaders ask transaction coordinators on other brokers."""
        return self.clients(f"AddPartitionsManager-client-{self.node_id}", negotiates=True)

    def share_coordinators_elsewhere(self) -> NodeClients:
        """How groups and leaders ask share coordinators on other brokers."""
        return self.clients(f"Persister-client-{self.node_id}", negotiates=True)

    def clients(self, client_id: str, *, negotiates: bool) -> NodeClients:
        """Clients of the other brokers that give themselves this id; `close` ends them."""
        broker = self._broker
        seconds = broker.config.get("request.timeout.ms") / 1000
        clients = NodeClients(
            broker.loop,
            broker.outbound.transport(),
            self._parts.cache,
            lambda: self._listener,
            ClientSettings(client_id, negotiates=negotiates, request_seconds=seconds),
        )
        self._all_clients.append(clients)
        return clients

    def _exists(self, topic: str, index: int) -> bool:
        """Whether the cluster has the partition.  True while no controller has sent metadata: clients must not take the
        partition for deleted."""
        cache = self._parts.cache
        if not cache.is_filled:
            return True
        known = cache.topic(topic)
        return known is not None and 0 <= index < len(known.partitions)

    def periodic_tasks(self) -> list[PeriodicTask]:
        """What the loop runs from time to time."""
        every = max(1, self._broker.config.get("replica.lag.time.max.ms") // 2)
        return [
            PeriodicTask("drop replicas that lag", every, self._drop_lagging),
            PeriodicTask("set stray replicas aside", STRAYS_INTERVAL_MS, self._look_for_strays),
        ]

    def _drop_lagging(self) -> None:
        self.isr.drop_lagging(list(self._parts.replicas))

    def _look_for_strays(self) -> None:
        replicas = self._parts.replicas

        def is_hosted(name: TopicPartition) -> bool:
            return (
                replicas.hosted(name) is not None or replicas.roles.is_offline(name) or name in replicas.roles.given_up
            )

        logs = replicas.log_manager.logs
        self._strays.look(stray_replicas(self._parts.cache.image, self.node_id, logs, is_hosted))

    def close(self) -> None:
        """Copy, propose and ask nothing any more; `channel` is closed by itself, behind the membership."""
        self.fetchers.close()
        self.isr.close()
        if self._markers is not None:
            self._markers.close()
        for clients in self._all_clients:
            clients.close()
