"""What the console asks: the parts of one broker, and what it gathers from them for all viewers together."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kbroker.console.connection_lines import ConnectionLine, connection_lines
from kbroker.console.group_lag import Bounds, lag_of_uncommitted
from kbroker.console.group_lines import GroupLine, group_lines
from kbroker.console.masking import Mask, Masks
from kbroker.console.other_consoles import OtherConsoles
from kbroker.console.parameters import NotShownError, Parameters
from kbroker.console.reader import Reader
from kbroker.console.shared_values import SharedValue
from kbroker.console.topic_lines import TopicLine, topic_lines
from kbroker.console.viewer_client import ViewerClient
from kbroker.metrics.snapshot import GroupRow, LogRows, group_rows, log_rows
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind
from kbroker.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from kbroker.console.viewer_client import Inside
    from kbroker.handlers.services import Services
    from kbroker.metrics.http_messages import Viewer
    from kbroker.metrics.readiness import Readiness
    from kbroker.metrics.sources import Sources
    from kbroker.network.listener import Listener
    from kbroker.registry.client import Registry
    from kbroker.registry.display import Display


Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class GroupRows:
    """All groups with their lag, of partitions that they read and never committed, too."""

    groups: tuple[GroupRow, ...]


class ConsoleParts:
    """`services` gives those of a broker that is ready; `why_no_messages` is empty where viewers may read records;
    `display` and `masks`, set before the first viewer comes, decode these and hide parts of them, as is `registry`."""

    def __init__(
        self,
        sources: Sources,
        readiness: Readiness,
        services: Callable[[], Services],
        listeners: Sequence[Listener],
        why_no_messages: str,
        inside: Inside,
    ) -> None:
        self._inside = inside
        self._host = ""
        self._client: ViewerClient | None = None
        self.sources = sources
        self.readiness = readiness
        self.listeners = listeners
        self.why_no_messages = why_no_messages
        self.display: Display | None = None
        self.masks = Masks(())
        self.registry: Registry | None = None
        self._viewer: Viewer | None = None
        self._services = services
        self.reader = Reader()
        self.consoles = OtherConsoles()
        self.logs = SharedValue(self._gather_logs)
        self.bounds = SharedValue(self._gather_bounds)
        self.groups = SharedValue(self._gather_groups)
        self.connections = SharedValue(self._gather_connections)
        self.topics = SharedValue(self._gather_topics)
        self.group_lines = SharedValue(self._gather_group_lines)

    def seen_by(self, viewer: Viewer | None, host: str, why_no_messages: str = "") -> ConsoleParts:
        """The same for one viewer, at an address: what is shared stays shared, `may` and `shown` look at the viewer's
        rights.  `why_no_messages`: the reason why this viewer may not read records; empty if it may.  To be
        closed."""
        parts = copy.copy(self)
        parts._viewer = viewer
        parts._host = host or "127.0.0.1"
        parts.why_no_messages = self.why_no_messages or why_no_messages
        return parts

    @property
    def client(self) -> ViewerClient:
        """Asks brokers, this one or others, as the viewer."""
        if self._client is None:
            viewer = self._viewer
            login = None if viewer is None else viewer.login
            self._client = ViewerClient(self.services, self._inside, self.principal, self._host, login)
        return self._client

    @property
    def login(self) -> tuple[str, str] | None:
        """Name and password by which the viewer has proved itself, None where it was something else."""
        return None if self._viewer is None else self._viewer.login

    def close(self) -> None:
        """Hang up what was asked for the viewer."""
        if self._client is not None:
            self._client.close()

    def shows_messages_of(self, topic: str) -> bool:
        """Whether the viewer may read a topic's records here."""
        return not self.why_no_messages and self.may(Operation.READ, ResourceKind.TOPIC, topic)

    def mask_of(self, topic: str) -> Mask | None:
        """What of a topic's records is hidden from the viewer."""
        mask = self.masks.of(topic)
        if mask is None or self._viewer is None:
            return mask
        return None if self._viewer.may(Operation.ALTER, ResourceKind.TOPIC, topic) else mask

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether the viewer may do that to a resource."""
        return self._viewer is None or self._viewer.may(operation, kind, name)

    def may_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the viewer may do that to some resource of a kind."""
        return self._viewer is None or self._viewer.may_any(operation, kind)

    @property
    def principal(self) -> Principal:
        """The viewer's."""
        return ANONYMOUS if self._viewer is None else Principal(*self._viewer.principal)

    def require_cluster(self, operation: Operation) -> None:
        """NotShownError where the viewer may not do that to the cluster."""
        if not self.may(operation, ResourceKind.CLUSTER, CLUSTER_NAME):
            raise NotShownError(f"This takes {operation.name} on the cluster.")

    async def shown(self, lines: Sequence[Line], kind: ResourceKind, name_of: Callable[[Line], str]) -> Sequence[Line]:
        """Those lines whose resource the viewer may describe."""
        if self._viewer is None:
            return lines
        pace = self.sources.slices.pace()
        found = []
        for line in lines:
            await pace
            if self._viewer.may(Operation.DESCRIBE, kind, name_of(line)):
                found.append(line)
        return found

    @property
    def services(self) -> Services:
        """The broker's parts."""
        return self._services()

    async def _gather_logs(self) -> LogRows:
        return await log_rows(list(self.sources.logs()), True, self.sources.slices.pace())

    async def _gather_groups(self) -> GroupRows:
        logs = await self.logs.get()
        pace = self.sources.slices.pace()
        rows, _ = await group_rows(self.sources, logs.ends, pace)
        if not rows:
            return GroupRows(rows)
        bounds, topics = await self.bounds.get(), self.services.metadata_cache.image.topics
        known = self.services.group_coordinator.registry.groups
        whole = []
        for row in rows:
            group = known.get(row.group_id)
            more = 0 if group is None else await lag_of_uncommitted(group, topics, bounds, pace)
            whole.append(row._replace(lag=row.lag + more))
        return GroupRows(tuple(whole))

    async def _gather_bounds(self) -> Bounds:
        logs = await self.logs.get()
        return {(row.topic, row.partition): (row.log_start_offset, row.high_watermark) for row in logs.partitions}

    async def _gather_topics(self) -> list[TopicLine]:
        logs = await self.logs.get()
        topics = self.services.metadata_cache.image.topics
        policy = ",".join(self.services.config.get("log.cleanup.policy"))
        return await asyncio.get_running_loop().run_in_executor(None, topic_lines, logs, topics, policy)

    async def _gather_group_lines(self) -> list[GroupLine]:
        rows = {row.group_id: row for row in (await self.groups.get()).groups}
        return await group_lines(self.services.group_coordinator.list_groups((), ()), rows, self.sources.slices.pace())

    async def _gather_connections(self) -> list[ConnectionLine]:
        return await connection_lines(self.listeners, self.sources.slices.pace())


Value = Callable[[], object]
"""Makes what becomes JSON, in a thread, of values that no longer change."""

Endpoint = Callable[[ConsoleParts, Parameters], Awaitable[Value]]
"""Gathers an answer on the loop.  Raises BadParameterError, NotThereError."""
