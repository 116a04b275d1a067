"""The brokers of the cluster, as this one's metadata have them: where they are, and what they lead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.console.parameters import PageOf, keys_of, page_of, view_of
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker.console.parameters import Key, Parameters
    from kbroker.console.parts import ConsoleParts, Value


@dataclass(frozen=True, slots=True)
class BrokerLine:
    """One broker.  `endpoints`: listeners with their addresses; `missing_count`: replicas that it has and that are not
    in sync; `is_here`: the one that tells."""

    node_id: int
    endpoints: Sequence[str]
    rack: str
    state: str
    is_controller: bool
    is_here: bool
    leader_count: int
    replica_count: int
    missing_count: int


@dataclass(frozen=True, slots=True)
class Controllers:
    """A controller of a KRaft cluster."""

    node_id: int
    endpoints: Sequence[str]
    is_active: bool


@dataclass(frozen=True, slots=True)
class Brokers:
    """A page of brokers; `leaderless_count`: partitions without a leader; `controllers`: those of a KRaft cluster."""

    cluster_id: str
    leaderless_count: int
    controllers: Sequence[Controllers]
    page: PageOf[BrokerLine]


_KEYS: Mapping[str, Key[BrokerLine]] = keys_of(
    "node_id", "rack", "state", "leader_count", "replica_count", "missing_count"
)


async def brokers(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/brokers?q=&sort=&start=&count="""
    view = view_of(parameters, _KEYS)
    parts.require_cluster(Operation.DESCRIBE)
    services = parts.services
    image = services.metadata_cache.image
    pace = parts.sources.slices.pace()
    leads: Counter[int] = Counter()
    has: Counter[int] = Counter()
    lacks: Counter[int] = Counter()
    leaderless = 0
    for topic in list(image.topics.values()):
        for each in topic.partitions:
            await pace
            has.update(each.replicas)
            lacks.update(set(each.replicas) - set(each.isr))
            if each.leader < 0:
                leaderless += 1
            else:
                leads[each.leader] += 1
    lines = [
        BrokerLine(
            broker.node_id,
            [f"{name}://{endpoint.host}:{endpoint.port}" for name, endpoint in sorted(broker.endpoints.items())],
            broker.rack or "",
            "fenced" if broker.is_fenced else "stopping" if broker.in_controlled_shutdown else "alive",
            broker.node_id == image.controller_id,
            broker.node_id == services.node_id,
            leads[broker.node_id],
            has[broker.node_id],
            lacks[broker.node_id],
        )
        for broker in image.brokers.values()
    ]
    # A replica may lie on a broker that is not there at all.
    gone = sorted(set(has) - set(image.brokers))
    lines += [
        BrokerLine(node_id, (), "", "not there", False, False, leads[node_id], has[node_id], lacks[node_id])
        for node_id in gone
    ]
    controllers = [
        Controllers(
            each.node_id,
            [f"{name}://{endpoint.host}:{endpoint.port}" for name, endpoint in sorted(each.endpoints.items())],
            each.node_id == image.controller_id,
        )
        for each in image.controllers.values()
    ]

    def text(line: BrokerLine) -> str:
        return f"{line.node_id} {line.rack} {line.state} {' '.join(line.endpoints)}"

    return lambda: Brokers(image.cluster_id, leaderless, controllers, page_of(lines, view, _KEYS, text))
