"""Where the members of a group answer interactive queries: for each endpoint, the partitions that it has state of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.coordinator.streams.configuration import ConfiguredSubtopology, ConfiguredTopology, CountOf
from kbroker.coordinator.streams.draft import EndpointPartitions
from kbroker.coordinator.streams.member import StreamsMember
from kbroker.coordinator.streams.tasks import Partitions


def endpoint_partitions(
    members: Iterable[StreamsMember], configured: ConfiguredTopology, count_of: CountOf
) -> tuple[EndpointPartitions, ...]:
    """The endpoints of the members that have one."""
    subtopologies = configured.subtopologies or {}
    return tuple(
        EndpointPartitions(
            member.endpoint,
            _topics(member.assigned.active_partitions, subtopologies, count_of),
            _topics(member.assigned.standby, subtopologies, count_of),
        )
        for member in members
        if member.endpoint is not None
    )


def _topics(
    tasks: Partitions, subtopologies: Mapping[str, ConfiguredSubtopology], count_of: CountOf
) -> dict[str, frozenset[int]]:
    """Partitions by topic of these tasks; a topic may have fewer partitions than its subtopology has tasks."""
    found: dict[str, frozenset[int]] = {}
    for subtopology, partitions in sorted(tasks.items()):
        if subtopology in subtopologies:
            for topic in sorted(subtopologies[subtopology].sources):
                count = count_of(topic) or 0
                found[topic] = frozenset(partition for partition in partitions if partition < count)
    return found
