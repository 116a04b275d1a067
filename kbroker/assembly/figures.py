"""What a scrape of the metrics asks of a broker's parts; those that are not there yet count nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from kbroker import __version__
from kbroker.assembly.kafka_figures import counters, kafka_figures
from kbroker.assembly.replication_figures import replica_figures
from kbroker.cluster.partition_reader import ends_elsewhere
from kbroker.coordinator.transactions.stable_offset import stable_offset_holders
from kbroker.metrics.maintenance import Values
from kbroker.metrics.recent import Recent
from kbroker.metrics.sources import (
    NO_TRANSACTIONS,
    CommitTotals,
    ConversionTotals,
    DirectorySpace,
    GroupSummary,
    OfflineTotals,
    QuotaRow,
    SchemaTotals,
    Sources,
    StableOffsetHolder,
    StorageTotals,
    TransactionTotals,
)
from kbroker.protocol.api import ApiKey
from kbroker.storage.reports.maintenance_figures import maintenance_figures, recovery_figures

if TYPE_CHECKING:
    from kbroker._fast.base.counters import RequestStats
    from kbroker._fast.base.slices import Pace
    from kbroker.assembly.listening import Listeners
    from kbroker.assembly.membership.cluster_membership import ClusterMembership
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.gate.enforcement import QuotaEnforcement
    from kbroker.handlers.services import Services
    from kbroker.metrics.kafka_sources import KafkaFigures
    from kbroker.metrics.loop_delay import LoopDelaySampler
    from kbroker.metrics.readiness import Readiness
    from kbroker.metrics.sources import ClientSample
    from kbroker.storage.manager.log_manager import LogManager
    from kbroker.types import TopicPartition


class BrokerFigures:
    """The numbers of one broker.  `services` and `quotas` are set before it is ready."""

    services: Services
    quotas: QuotaEnforcement
    recent: Recent

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        readiness: Readiness,
        logs: LogManager,
        listeners: Listeners,
        membership: ClusterMembership,
        security: Callable[[], Values],
    ) -> None:
        self.logs_loaded = False
        self._membership = membership
        self._security = security
        self._config = config
        self._clock = clock
        self._readiness = readiness
        self._logs = logs
        self._listeners = listeners

    def sample(self) -> None:
        """For rates and percentiles of the last minutes; call it every `recent.SAMPLE_SECONDS`."""
        self.recent.sample()

    def sources(self, node_id: int, cluster_id: str, requests: RequestStats, loop_delay: LoopDelaySampler) -> Sources:
        """All that a scrape reads."""
        self.recent = Recent(
            lambda: counters(requests, self._listeners, self._membership, self._logs), self._clock.monotonic
        )
        return Sources(
            version=__version__,
            node_id=node_id,
            cluster_id=cluster_id,
            requests=requests,
            api_name=_api_name,
            loop_delay=loop_delay,
            connections=self._listeners.totals,
            logs=self._logs.logs.values,
            directories=self._directory_spaces,
            commits=self._commit_totals,
            conversions=lambda: self.services.conversions.totals() if self._ready else ConversionTotals(),
            schemas=self._schema_totals,
            storage=self._storage_totals,
            offline=self._offline_totals,
            rebalances=self._rebalances,
            expired_offsets=lambda: self.services.group_coordinator.expired_offset_count if self._ready else 0,
            maintenance=self._maintenance,
            cluster=self._cluster,
            security=self._security,
            slices=self._logs.slices,
            max_partitions=self._config.get("kbroker.metrics.max.partitions"),
            groups=self._group_summaries,
            quotas=self._quota_rows,
            transactions=self._transaction_totals,
            stable_offset_holders=self._stable_offset_holders,
            client_samples=self._client_samples,
            ends_elsewhere=self._ends_elsewhere,
            kafka=self._kafka,
            recent=self.recent,
            fetches_waiting=lambda: len(self.services.replica_manager.purgatory) if self._ready else 0,
        )

    @property
    def _ready(self) -> bool:
        return self._readiness.ready

    def _rebalances(self) -> int:
        if not self._ready:
            return 0
        services = self.services
        return (
            services.group_coordinator.rebalance_count
            + services.consumer_groups.rebalance_count
            + services.streams_groups.rebalance_count
        )

    def _quota_rows(self) -> Iterable[QuotaRow]:
        return self.quotas.rows() if self._ready else ()

    def _client_samples(self) -> Iterable[ClientSample]:
        return self.services.telemetry.samples() if self._ready else ()

    def _transaction_totals(self) -> TransactionTotals:
        return self.services.transaction_coordinator.totals() if self._ready else NO_TRANSACTIONS

    def _stable_offset_holders(self) -> Iterable[StableOffsetHolder]:
        logs = list(self._logs.logs.values()) if self._ready else ()
        if not logs:
            return ()
        return stable_offset_holders(logs, self.services.transaction_coordinator, self._clock.now_ms())

    def _group_summaries(self) -> Iterable[GroupSummary]:
        return self.services.group_coordinator.summaries() if self._ready else ()

    def _directory_spaces(self) -> Iterable[DirectorySpace]:
        return [
            DirectorySpace(guard.path, guard.free_bytes, guard.is_refusing, guard.refused_count)
            for guard in self._logs.space_guards
        ]

    async def _maintenance(self, pace: Pace) -> Values:
        if not self.logs_loaded:
            return recovery_figures(self._logs)
        most = self._config.get("kbroker.metrics.max.partitions")
        return await maintenance_figures(self._logs, self._clock, most, pace)

    async def _cluster(self, pace: Pace) -> Values:
        if not self._ready:
            return {}
        replicas = await replica_figures(self.services.replica_manager, pace)
        return {**replicas, **await self._membership.figures(pace)}

    async def _ends_elsewhere(self, wanted: Collection[TopicPartition]) -> Mapping[tuple[str, int], int]:
        clients = self._membership.leaders_elsewhere() if self._ready else None
        if clients is None:
            return {}
        return await ends_elsewhere(wanted, self.services.metadata_cache.image, self.services.node_id, clients)

    async def _kafka(self, pace: Pace) -> KafkaFigures:
        services = self.services if self._ready else None
        most = self._config.get("kbroker.metrics.max.partitions")
        return await kafka_figures(self._readiness.state, self._logs, self._listeners, services, most, pace)

    def _commit_totals(self) -> CommitTotals:
        commits = self._logs.commits
        return CommitTotals(commits.fsync_count, commits.fsync_seconds, commits.settled_count)

    def _schema_totals(self) -> SchemaTotals:
        if not self._ready:
            return SchemaTotals()
        services = self.services
        ids = services.schema_ids
        if ids is None:
            return SchemaTotals(dict(services.schema_batches))
        return SchemaTotals(dict(services.schema_batches), dict(ids.answers), ids.count)

    def _storage_totals(self) -> StorageTotals:
        files, producers = self._logs.open_files, self._logs.environment.producers
        return StorageTotals(
            len(files), files.budget, len(files.maps), files.evictions, producers.count, producers.evictions
        )

    def _offline_totals(self) -> OfflineTotals:
        count = self.services.replica_manager.offline_count if self._ready else 0
        return OfflineTotals(tuple(self._logs.failures.offline), count)


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).message_name
    except ValueError:
        return str(api_key)
