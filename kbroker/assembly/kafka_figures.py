"""What a scrape under Kafka's names asks of a node's parts, besides what `figures` gives of a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.handlers.client_software import client_software
from kbroker.metadata.image import NO_LEADER
from kbroker.metrics.kafka_snapshot import FLUSHES, LOOP_TIME, request_counters
from kbroker.metrics.kafka_sources import KafkaFigures, ShownPartition, Traffic
from kbroker.metrics.readiness import ReadyState
from kbroker.protocol.api import ApiKey
from kbroker.storage.log.kept_traffic import NOTHING, Counted, added

if TYPE_CHECKING:
    from kbroker._fast.base.counters import RequestStats
    from kbroker._fast.base.slices import Pace
    from kbroker.assembly.listening import Listeners
    from kbroker.assembly.membership.cluster_membership import ClusterMembership
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage
    from kbroker.metrics.families import Labelled
    from kbroker.metrics.recent import Counters
    from kbroker.storage.manager.log_manager import LogManager

API_NAMES = {int(api): api.message_name for api in ApiKey}
#: As Kafka numbers the states of a broker.
BROKER_STATES = {ReadyState.STARTING: 1.0, ReadyState.READY: 3.0, ReadyState.STOPPING: 7.0}
#: What Kafka has purgatories for and does not wait here: ACLs are the controller's, there is no tiered storage.
NEVER_DELAYED = (("AlterAcls",), ("RemoteFetch",), ("RemoteListOffsets",))
IO = Path("/proc/self/io")
DISK_COUNTERS = {"read_bytes": "read", "write_bytes": "write"}


def node_counters(requests: RequestStats, listeners: Listeners) -> Counters:
    """What `Recent` reads of any node, on the loop's thread."""
    found = dict(request_counters(requests, API_NAMES))
    for listener in listeners.all:
        found["accepted", listener.name] = (listener.accepted_count,)
        found["ended", listener.name] = (listener.closed.total(),)
    found[LOOP_TIME] = (time.thread_time(),)
    return found


def counters(requests: RequestStats, listeners: Listeners, membership: ClusterMembership, logs: LogManager) -> Counters:
    """What `Recent` reads of a broker, on the loop's thread."""
    found = dict(node_counters(requests, listeners))
    (flush_ns, flushes), (commit_ns, commits) = logs.environment.flushes.times.snapshot(), logs.commits.times.snapshot()
    times = tuple(a + b for a, b in zip(flushes, commits, strict=True))
    found[FLUSHES] = (sum(times), flush_ns + commit_ns, *times)
    return {**found, **membership.counters()}


async def node_values(state: ReadyState, listeners: Listeners, pace: Pace) -> dict[str, float | Labelled]:
    """The values that any node has."""
    values: dict[str, float | Labelled] = {"kafka_server_kafkaserver_brokerstate": BROKER_STATES[state]}
    for size, what in disk_bytes():
        values[f"kafka_server_kafkaserver_linux_disk_{what}_bytes"] = size
    return {**values, **await _connections(listeners, pace)}


async def kafka_figures(
    state: ReadyState, logs: LogManager, listeners: Listeners, services: Services | None, most: int, pace: Pace
) -> KafkaFigures:
    """`services`: None while the broker starts; `most`: series by topic and partition that are shown."""
    values = await node_values(state, listeners, pace)
    if services is None:
        return KafkaFigures(values=values)
    total, traffic = await _traffic(logs, pace)
    image = services.metadata_cache.image
    partitions, topics = await _shown(services, image, most, pace)
    sessions = services.fetch_sessions
    cached = 0
    for session in list(sessions):
        await pace
        cached += session.cached_size
    alive = len(image.alive_brokers())
    own = image.brokers.get(services.node_id)
    endpoint = next(iter(own.endpoints.values()), None) if own is not None else None
    shards = services.transaction_coordinator.runtime.shards
    loads = [shard.load_seconds * 1000 for shard in shards if shard.coordinator is not None]
    values |= {
        "kafka_server_fetchsessioncache_numincrementalfetchsessions": len(sessions),
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached": cached,
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions": sessions.evictions,
        "kafka_brokers": alive,
        "kafka_broker_info": {}
        if endpoint is None
        else {(str(services.node_id), f"{endpoint.host}:{endpoint.port}"): 1.0},
        "kafka_server_transaction_coordinator_metrics_partition_load_time_max": max(loads, default=0.0),
        "kafka_server_transaction_coordinator_metrics_partition_load_time_avg": sum(loads) / max(len(loads), 1),
    }
    values |= await _delayed(services, pace)
    count = sum(len(topic.partitions) for topic in image.topics.values())
    shown = traffic if len(traffic) <= most else {}
    fenced = len(image.brokers) - alive
    return KafkaFigures(total, shown, partitions, topics, len(image.topics), count, alive, fenced, values)


async def _traffic(logs: LogManager, pace: Pace) -> tuple[Traffic, dict[str, Traffic]]:
    """Of all topics, and of each that has a log here."""
    sums: dict[str, Counted] = {}
    total = logs.traffic.total
    kept = logs.traffic.topics
    for log in list(logs.logs.values()):
        await pace
        topic = log.topic_partition.topic
        counted = log.counted()
        total = added(total, counted)
        sums[topic] = added(sums.get(topic) or kept.get(topic, NOTHING), counted)
    return Traffic(*total), {topic: Traffic(*counted) for topic, counted in sums.items()}


async def _shown(
    services: Services, image: ClusterImage, most: int, pace: Pace
) -> tuple[tuple[ShownPartition, ...], dict[str, int]]:
    """The partitions and topics that this broker shows."""
    node_id, replicas = services.node_id, services.replica_manager
    is_first = node_id == min(image.brokers, default=node_id)
    partitions: list[ShownPartition] = []
    topics: dict[str, int] = {}
    for topic in list(image.topics.values()):
        led = replicas.topics.get(topic.name, {})
        for row in topic.partitions:
            await pace
            if row.leader != node_id and not (row.leader == NO_LEADER and is_first):
                continue
            if row.partition == 0 and len(topics) <= most:
                topics[topic.name] = len(topic.partitions)
            if len(partitions) > most:
                continue
            at = led.get(row.partition)
            partitions.append(
                ShownPartition(
                    topic.name,
                    row.partition,
                    row.leader,
                    len(row.replicas),
                    len(row.isr if at is None else at.isr),
                    row.leader == row.replicas[0],
                    0 if at is None else at.min_in_sync,
                )
            )
    return tuple(partitions) if len(partitions) <= most else (), topics if len(topics) <= most else {}


async def _delayed(services: Services, pace: Pace) -> dict[str, float | Labelled]:
    """What waits for something else than its turn, under the names of Kafka's purgatories."""
    purgatory = services.replica_manager.purgatory
    requests: dict[tuple[str, ...], float] = dict.fromkeys(NEVER_DELAYED, 0.0)
    watched = dict(requests)
    for name, tally in (("Produce", purgatory.produces), ("DeleteRecords", purgatory.deletions)):
        requests[name,], watched[name,] = tally.requests, tally.watched
    for name in ("Fetch", "ShareFetch"):
        requests[name,] = watched[name,] = 0.0
    for fetch in purgatory.delayed:
        await pace
        requests[fetch.operation,] += 1
        watched[fetch.operation,] += len(fetch.sources)
    one = "kafka_server_delayedoperationpurgatory_"
    return {f"{one}purgatorysize": watched, f"{one}numdelayedoperations": requests}


async def _connections(listeners: Listeners, pace: Pace) -> dict[str, float | Labelled]:
    """Connections by the software of their clients, and how many have answers that were not taken."""
    waiting = 0
    software: dict[tuple[str, ...], float] = {}
    for listener in listeners.all:
        for connection in list(listener.endpoint.connections):
            await pace
            waiting += connection.queued_bytes > 0
            said = client_software(connection)
            if said is not None:
                key = (said.name, said.version, listener.name)
                software[key] = software.get(key, 0.0) + 1.0
    return {
        "kafka_network_requestchannel_responsequeuesize": waiting,
        "kafka_server_socketservermetrics_connections": software,
    }


def disk_bytes() -> Iterator[tuple[float, str]]:
    """What /proc/self/io says, as Kafka reads it: bytes, and what was done with them; nothing where it says nothing."""
    try:
        lines = IO.read_text("ascii").splitlines()
    except OSError:
        return
    for line in lines:
        name, _, number = line.partition(": ")
        if name in DISK_COUNTERS:
            yield float(number), DISK_COUNTERS[name]
