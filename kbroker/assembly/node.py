"""What nodes of every role have: settings, clock, listeners and their security, metrics, and how one ends.

A broker (`kbroker.broker`) has a node and adds logs, replicas and coordinators; its listeners serve its role
(`listening.Role`).  Nothing here knows which roles there are.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kbroker._fast.base.counters import RequestStats
from kbroker._fast.base.slices import Slices
from kbroker._fast.net.socket_part import PlainSocket
from kbroker.assembly.listening import Listeners
from kbroker.clock import SYSTEM_CLOCK
from kbroker.host.freed_memory import FreedMemory, heap
from kbroker.host.garbage import GarbageCollection
from kbroker.host.halt import exit_later
from kbroker.metrics.http_guard import names_of
from kbroker.metrics.loop_delay import LoopDelaySampler
from kbroker.metrics.readiness import Readiness, ReadyState
from kbroker.metrics.start import start_metrics_server
from kbroker.network.limits import beside_the_loop, raise_descriptor_limit
from kbroker.periodic import PeriodicTasks
from kbroker.security.listeners import STORES_INTERVAL_MS, ListenersSecurity
from kbroker.security.sasl.credentials import StoredCredentials
from kbroker.security.sasl.listeners import Sasl

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart
    from kbroker.config import BrokerConfig
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.security_image import SecurityImage
    from kbroker.metrics.http_messages import Access, BodyLimits, Pages, Sites
    from kbroker.metrics.http_server import MetricsServer
    from kbroker.metrics.sources import Sources

logger = logging.getLogger("kbroker.broker")

SWEEP_INTERVAL_MS = 1_000
TRIM_INTERVAL_MS = 30_000
COMPLAINTS_INTERVAL_MS = 10_000
UNREACHED_INTERVAL_MS = 10_000


class Node:
    """One node of a cluster.  It sets `stopping` and `failed` when it cannot go on."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        stopping: asyncio.Event | None,
        security: Callable[[], SecurityImage],
        make_socket: Callable[[Connection], SocketPart] = PlainSocket,
    ) -> None:
        """`security`: users and tokens by now.  `make_socket` is for connections that are not TCP's."""
        self.config = config
        self.loop = loop
        self.stopping = stopping or asyncio.Event()
        self.failed = False
        self.clock = SYSTEM_CLOCK
        self.readiness = Readiness()
        self.stats = RequestStats()
        self.tasks = PeriodicTasks(loop)
        self.slices = Slices(loop)
        self.garbage = GarbageCollection(loop)
        self.metrics: MetricsServer | None = None
        secret = config.get("delegation.token.secret.key")
        self._secret = None if secret is None else secret.encode()
        """That of delegation tokens, which all nodes of a cluster have."""
        users = StoredCredentials(security, self._secret, self.clock)
        self.sasl = Sasl(config, self.clock, users)
        threads = max(1, beside_the_loop(config.get("num.network.threads")))
        self.security = ListenersSecurity(config, loop, make_socket, self.sasl.listener, threads)
        descriptors = raise_descriptor_limit()
        self.listeners = Listeners(config, loop, self.stats, descriptors, self.security.by_name, self.slices)
        self.loop_delay = LoopDelaySampler(self.activity)

    def take(self, settings: BrokerSettings, kept: Callable[[], bytes]) -> None:
        """Begin with these settings, and hold later ones to what the listeners can do.

        `kept()`: a secret of this node's own, for where the cluster has none in common.
        """
        self.security.begin(settings.config)
        self.sasl.follow(settings.config)
        common = self._secret
        self.sasl.keep_salts(kept if common is None else lambda: common)
        settings.guard(self.security.check)
        settings.guard(self.sasl.check)

    def activity(self) -> int:
        """A number that grows with each connection and each request."""
        return self.listeners.accepted_count + self.stats.total()

    async def start_metrics(
        self,
        listener: str,
        sources: Sources,
        pages: Pages,
        sites: Sites,
        access: Access | None,
        bodies: BodyLimits,
    ) -> None:
        """Serve metrics, readiness and `sites` on `listener`, from here on."""
        self.metrics = await start_metrics_server(
            listener,
            sources,
            self.readiness,
            pages=pages,
            sites=sites,
            hosts=names_of(self.config),
            access=access,
            tls=self._metrics_context,
            names=self.config.get("kbroker.metrics.names"),
            bodies=bodies,
        )

    def _metrics_context(self) -> ssl.SSLContext:
        """That of the metrics listener, which follows its key store."""
        from kbroker.security.tls.http_context import HttpContext

        found = HttpContext.of(self.config)
        self.tasks.add("look for a new certificate of the metrics listener", STORES_INTERVAL_MS, found.refresh)
        return found.context

    def schedule(self, settings: Callable[[], BrokerConfig]) -> None:
        """Begin what a node does from time to time; `settings`: those of now."""
        add, listeners = self.tasks.add, self.listeners
        add("close idle connections", SWEEP_INTERVAL_MS, listeners.close_idle)
        add("look for unreached addresses", UNREACHED_INTERVAL_MS, listeners.look_for_unreached)
        add("log suppressed complaints", COMPLAINTS_INTERVAL_MS, listeners.log_suppressed)
        add("log suppressed failures of SASL", COMPLAINTS_INTERVAL_MS, self.sasl.log_suppressed)
        add("give back receive buffers", TRIM_INTERVAL_MS, listeners.pool.trim)
        add("collect garbage", self.garbage.INTERVAL_MS, self.garbage.run)
        of_process = heap()
        if of_process is not None:
            add("give back freed memory", FreedMemory.INTERVAL_MS, FreedMemory(of_process).run)
        if self.security.tls:

            async def follow_stores() -> None:
                await self.security.follow_files(settings, self.clock.now_ms())
                self.security.log_suppressed()

            add("look for new certificates", STORES_INTERVAL_MS, follow_stores)

    def follow(self, config: BrokerConfig) -> None:
        """Settings were changed at run time."""
        self.listeners.follow(config)
        self.security.follow(config)
        self.sasl.follow(config)

    def halt(self, reason: str) -> None:
        """Ends the node: the remaining parts are stopped in order, as far as that works and does not take long."""
        logger.critical("the broker cannot go on and halts: %s", reason)
        self.readiness.move(ReadyState.STOPPING)
        self.readiness.describe(reason)
        self.failed = True
        exit_later(1)
        self.stopping.set()

    # A stop, in this order

    def stop_accepting(self) -> None:
        """Take no more connections and no more logins."""
        self.readiness.move(ReadyState.STOPPING)
        self.listeners.stop_accepting()
        self.sasl.close()

    async def close_connections(self) -> None:
        """Let requests under way finish, and close the connections."""
        await self.listeners.close()
        self.security.close()

    async def close(self) -> None:
        """End all that is left: tasks, metrics, threads."""
        self.tasks.stop()
        self.garbage.stop()
        self.loop_delay.stop()
        if self.metrics is not None:
            await self.metrics.close()
        self.listeners.cold_reads.shutdown(wait=False, cancel_futures=True)
