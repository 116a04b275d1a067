"""What a scrape of the metrics asks of a broker's parts; those that are not there yet count nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kbroker import __version__
from kbroker.assembly.kafka_figures import counters, kafka_figures
from kbroker.assembly.replication_figures import replica_figures
from kbroker.cluster.partition_reader import ends_elsewhere
from kbroker.coordinator.transactions.stable_offset import stable_offset_holders
from kbroker.metrics.recent import Hour, Recent, Totals
from kbroker.metrics.sources import SCHEMA_ANSWERS, SCHEMA_OUTCOMES, Sources, StableOffsetHolder
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
    from kbroker.metrics.families import Labelled, Values
    from kbroker.metrics.kafka_sources import KafkaFigures
    from kbroker.metrics.loop_delay import LoopDelaySampler
    from kbroker.metrics.readiness import Readiness
    from kbroker.storage.manager.log_manager import LogManager
    from kbroker.types import TopicPartition

Found = TypeVar("Found")


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

    async def sample(self) -> None:
        """For rates and percentiles of the last minutes and the charts of the last hour; call it every
        `recent.SAMPLE_SECONDS`."""
        self.recent.sample()
        self._hour.add(await self._totals())

    async def _totals(self) -> Totals:
        pace = self._logs.slices.pace()
        records = 0
        for log in list(self._logs.logs.values()):
            await pace
            records += log.high_watermark
        rows = self._requests.snapshot()
        delay_ns, delays = self._loop_delay.histogram.snapshot()
        return Totals(
            time.time(),
            records,
            sum(row[3] for row in rows if row[0] == ApiKey.PRODUCE),
            sum(row[4] for row in rows if row[0] == ApiKey.FETCH),
            sum(row[1] for row in rows),
            time.process_time(),
            delay_ns / 1e9,
            sum(delays),
        )

    def sources(self, node_id: int, cluster_id: str, requests: RequestStats, loop_delay: LoopDelaySampler) -> Sources:
        """All that a scrape reads."""
        self._hour, self._requests, self._loop_delay = Hour(), requests, loop_delay
        self.recent = Recent(
            lambda: counters(requests, self._listeners, self._membership, self._logs), self._clock.monotonic
        )
        of = self._of_services
        return Sources(
            version=__version__,
            node_id=node_id,
            cluster_id=cluster_id,
            requests=requests,
            api_name=_api_name,
            loop_delay=loop_delay,
            logs=self._logs.logs.values,
            groups=of(lambda services: services.group_coordinator.summaries(), ()),
            ends_elsewhere=self._ends_elsewhere,
            quotas=of(lambda _: self.quotas.rows(), ()),
            stable_offset_holders=of(self._stable_offset_holders, ()),
            client_samples=of(lambda services: services.telemetry.samples(), ()),
            connections=self._listeners.figures,
            directories=self._directories,
            transactions=of(lambda services: services.transaction_coordinator.figures(), {}),
            counted=self._counted,
            gathered=self._gathered,
            kafka=self._kafka,
            recent=self.recent,
            hour=self._hour,
            max_partitions=self._config.get("kbroker.metrics.max.partitions"),
            slices=self._logs.slices,
        )

    @property
    def _ready(self) -> bool:
        return self._readiness.ready

    def _of_services(self, read: Callable[[Services], Found], absent: Found) -> Callable[[], Found]:
        """Reads of the services once they are there."""
        return lambda: read(self.services) if self._ready else absent

    def _stable_offset_holders(self, services: Services) -> Iterable[StableOffsetHolder]:
        logs = list(self._logs.logs.values())
        return stable_offset_holders(logs, services.transaction_coordinator, self._clock.now_ms())

    def _directories(self) -> Values:
        guards, failed = self._logs.space_guards, self._logs.failures.offline
        free: Labelled = {(guard.path,): guard.free_bytes for guard in guards}
        return {
            "kbroker_log_dir_free_bytes": free,
            "kbroker_log_dir_refusing": {(guard.path,): guard.is_refusing for guard in guards},
            "kbroker_log_dir_refused": {(guard.path,): guard.refused_count for guard in guards},
            "kbroker_log_dir_offline": {**dict.fromkeys(free, 0), **{(path,): 1 for path in failed}},
            "kbroker_log_dirs_offline": len(failed),
        }

    def _counted(self) -> Values:
        files, producers, commits = self._logs.open_files, self._logs.environment.producers, self._logs.commits
        return {
            "kbroker_commit_fsyncs": commits.fsync_count,
            "kbroker_commit_fsync_seconds": commits.fsync_seconds,
            "kbroker_commit_waits": commits.settled_count,
            "kbroker_open_segments": len(files),
            "kbroker_open_segments_limit": files.budget,
            "kbroker_open_index_maps": len(files.maps),
            "kbroker_idempotent_producers": producers.count,
            "kbroker_open_segment_evictions": files.evictions,
            "kbroker_idempotent_producer_evictions": producers.evictions,
            **_schemas(self.services if self._ready else None),
            **(_service_counts(self.services) if self._ready else {}),
        }

    async def _gathered(self, pace: Pace) -> Values:
        return {**await self._maintenance(pace), **await self._cluster(pace), **self._security()}

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


def _service_counts(services: Services) -> Values:
    groups = services.group_coordinator
    return {
        **services.conversions.figures(),
        "kbroker_fetches_waiting": len(services.replica_manager.purgatory),
        "kbroker_partitions_offline": services.replica_manager.offline_count,
        "kbroker_group_rebalances": groups.rebalance_count
        + services.consumer_groups.rebalance_count
        + services.streams_groups.rebalance_count,
        "kbroker_group_expired_offsets": groups.expired_offset_count,
    }


def _schemas(services: Services | None) -> Values:
    """Batches by how they were judged, ids by what the registry said, and those that are believed to be there."""
    ids = None if services is None else services.schema_ids
    batches = {} if services is None else services.schema_batches
    answers = {} if ids is None else ids.answers
    return {
        "kbroker_schema_validation_batches": _each(SCHEMA_OUTCOMES, batches),
        "kbroker_schema_lookups": _each(SCHEMA_ANSWERS, answers),
        "kbroker_schema_known_ids": 0 if ids is None else ids.count,
    }


def _each(names: Iterable[str], counts: Mapping[str, int]) -> Labelled:
    return {(name,): counts.get(name, 0) for name in names}


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).message_name
    except ValueError:
        return str(api_key)
