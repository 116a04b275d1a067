"""All clusters on one page: this one, and those whose consoles `kbroker.console.links` names.

The broker asks the other consoles for their line (`other_consoles`), so that no browser has to go to another origin.
Links of one name are brokers of one cluster: the first that answers says what the cluster has, and lag is that of the
groups of all brokers that answered.  The broker passes a viewer's name and password on to the other consoles, over
https or to this machine alone, and asks them for nothing by rights of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kbroker.console.cluster_summary import ClusterSummary
from kbroker.console.links import Link, links_of
from kbroker.console.other_consoles import Said
from kbroker.console.parameters import NotShownError
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, Value


@dataclass(frozen=True, slots=True)
class ClusterLine:
    """`problem`: why there is no `summary`; empty where there is one.  `answered`: brokers that did, of those that
    links name; `is_whole`: whether these are all brokers that are alive, and lag so that of all groups."""

    name: str
    address: str
    is_here: bool
    problem: str
    summary: ClusterSummary | None
    answered: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Clusters:
    """This cluster first."""

    clusters: Sequence[ClusterLine]


async def clusters(parts: ConsoleParts, _: Parameters) -> Value:
    """GET /console/api/clusters."""
    by_name: dict[str, list[Link]] = {}
    for link in links_of(parts.services.config.get("kbroker.console.links")):
        by_name.setdefault(link.name, []).append(link)
    asked = [link for links in by_name.values() for link in links]
    login = parts.login
    own, *others = await asyncio.gather(_own(parts), *(parts.consoles.said_by(link.address, login) for link in asked))
    said = dict(zip(asked, others, strict=True))
    lines = [_line("", "", [own], is_here=True)]
    lines += [
        _line(name, links[0].address, [said[link] for link in links], is_here=False) for name, links in by_name.items()
    ]
    return lambda: Clusters(lines)


async def cluster(parts: ConsoleParts, _: Parameters) -> Value:
    """GET /console/api/cluster."""
    summary = await summary_of(parts)
    return lambda: summary


async def summary_of(parts: ConsoleParts) -> ClusterSummary:
    """What this broker knows of its cluster.  NotShownError: the viewer may not describe the cluster."""
    parts.require_cluster(Operation.DESCRIBE)
    services = parts.services
    image = services.metadata_cache.image
    pace = parts.sources.slices.pace()
    partitions = under_replicated = leaderless = 0
    named: set[int] = set()
    for topic in list(image.topics.values()):
        for each in topic.partitions:
            await pace
            partitions += 1
            under_replicated += len(each.isr) < len(each.replicas)
            leaderless += each.leader < 0
            named.update(each.replicas)
    groups = (await parts.groups.get()).groups
    alive = {broker.node_id for broker in image.brokers.values() if not broker.is_fenced}
    _, said = parts.readiness.look()
    return ClusterSummary(
        image.cluster_id,
        services.node_id,
        parts.sources.version,
        "; ".join(line.removeprefix("- ") for line in said.splitlines() if line.startswith("- ")),
        len(alive),
        len((named | set(image.brokers)) - alive),
        len(image.topics),
        partitions,
        under_replicated,
        leaderless,
        len(groups),
        sum(group.lag for group in groups),
    )


async def _own(parts: ConsoleParts) -> Said:
    try:
        return await summary_of(parts)
    except NotShownError as error:
        return str(error)


def _line(name: str, address: str, said: Iterable[Said], *, is_here: bool) -> ClusterLine:
    answers = list(said)
    found = {each.node_id: each for each in answers if not isinstance(each, str)}
    if not found:
        return ClusterLine(name, address, is_here, "; ".join(str(each) for each in answers), None, 0, is_whole=False)
    first = next(iter(found.values()))
    if any(each.cluster_id != first.cluster_id for each in found.values()):
        text = f"the links with this name lead to {len({each.cluster_id for each in found.values()})} clusters"
        return ClusterLine(name, address, is_here, text, None, len(found), is_whole=False)
    whole = replace(
        first,
        health="; ".join(each.health for each in found.values() if each.health),
        group_count=sum(each.group_count for each in found.values()),
        lag=sum(each.lag for each in found.values()),
    )
    return ClusterLine(name, address, is_here, "", whole, len(found), is_whole=len(found) >= first.broker_count)
