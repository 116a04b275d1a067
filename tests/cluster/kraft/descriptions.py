"""What a broker describes of its cluster: all that clients and tools can ask of what the metadata log says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.schemas import wire
from tests.cluster.kraft.administrative_steps import GROUP, METRICS, OF_BROKER, TOPIC, TOPICS, described
from tests.cluster.kraft.asking import ask, shown
from tests.cluster.kraft.processes import Cluster

OF_DEFAULT = 3
OF_ALL = {1, OF_DEFAULT, 7, 8}
"""Sources of settings: a topic, all brokers, client metrics, a group.  A broker's own (2) are its own affair."""
ACLS = wire.DescribeAclsRequest(
    resource_type_filter=1,
    pattern_type_filter=1,
    operation=1,
    permission_type=1,
    resource_name_filter=None,
    principal_filter=None,
    host_filter=None,
)
ASKED: dict[str, tuple[Any, int]] = {
    "metadata": (wire.MetadataRequest(topics=None), 13),
    "cluster": (wire.DescribeClusterRequest(include_fenced_brokers=True), 2),
    "partitions": (
        wire.DescribeTopicPartitionsRequest(
            topics=[wire.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in TOPICS]
        ),
        0,
    ),
    "resources": (wire.ListConfigResourcesRequest(resource_types=[TOPIC, METRICS, GROUP]), 1),
    "quotas": (wire.DescribeClientQuotasRequest(components=[], strict=False), 1),
    "users": (wire.DescribeUserScramCredentialsRequest(users=None), 0),
    "acls": (ACLS, 3),
    "moves": (wire.ListPartitionReassignmentsRequest(topics=None), 0),
}
RESOURCES = [
    *((TOPIC, name) for name in TOPICS),
    (OF_BROKER, ""),
    *((METRICS, name) for name in ("m1", "m2")),
    *((GROUP, name) for name in ("g1", "g2")),
]


def settings_of(answer: Any) -> list[tuple[Any, ...]]:
    """What the log says of all brokers, not what one has by itself."""
    found = []
    for row in answer.results:
        for each in row.configs:
            said = [(other.name, other.value, other.source) for other in each.synonyms if other.source in OF_ALL]
            if each.config_source in OF_ALL - {OF_DEFAULT}:
                said.insert(0, (each.name, each.value, each.config_source))
            if said:
                found.append(
                    (row.resource_type, row.resource_name, row.error_code, each.name, list(dict.fromkeys(said)))
                )
    return sorted(found)


def answered(answer: Any, *, orders_members: bool) -> Any:
    """The answer; without the order of ISRs where that does not count, and then without the members of ELRs that are no
    replicas any more: Kafka's controllers keep those, and never elect them."""
    if not orders_members and isinstance(answer, wire.MetadataResponse | wire.DescribeTopicPartitionsResponse):
        for each in (row for topic in answer.topics for row in topic.partitions):
            each.isr_nodes = sorted(each.isr_nodes)
            if isinstance(each, wire.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition):
                replicas = each.replica_nodes
                each.eligible_leader_replicas = [
                    member for member in each.eligible_leader_replicas or () if member in replicas
                ]
    return answer


def image(
    cluster: Cluster, number: int, *, orders_members: bool = True, mask: Callable[[str], str] = str
) -> dict[str, Any]:
    """What a broker says of the cluster.  `orders_members`: whether the order in which members of ISRs came counts."""
    found: dict[str, Any] = {
        what: shown(answered(ask(cluster, number, request, version), orders_members=orders_members), mask)
        for what, (request, version) in ASKED.items()
    }
    found["settings"] = settings_of(ask(cluster, number, described(RESOURCES), 4))
    features = ask(cluster, number, wire.ApiVersionsRequest(client_software_name="a", client_software_version="b"), 4)
    found["features"] = sorted(map(repr, features.finalized_features))
    return found
