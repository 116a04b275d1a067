"""What a broker of a KRaft cluster answers from its own image: kbroker and Apache Kafka, asked the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from tests.cluster.kraft.asking import ask, shown
from tests.cluster.kraft.processes import Cluster, Kafka, Kbroker, running
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

OURS, THEIRS, FENCED = 1, 2, 3
BROKER, CONTROLLER, NEITHER = 1, 2, 3
NO_EPOCH = -(1 << 31)


@pytest.fixture(scope="module", name="cluster")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Topics, settings, quotas and users; broker 3 is fenced."""
    with running(tmp_path_factory.mktemp("cluster"), (Kbroker, Kafka, Kafka)) as cluster:
        cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        cluster.create("alone", [[3]])
        cluster.wait_isr("t", {1, 2, 3})
        settings = wire.IncrementalAlterConfigsRequest
        change(
            cluster,
            settings(
                resources=[
                    settings.AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[settings.AlterableConfig(name=key, config_operation=0, value=value)],
                    )
                    for kind, name, key, value in (
                        (2, "t", "retention.ms", "777000"),
                        (4, "", "log.cleaner.backoff.ms", "16000"),
                        (16, "metrics", "interval.ms", "60000"),
                        (32, "group", "consumer.session.timeout.ms", "46000"),
                    )
                ]
            ),
            1,
        )
        quotas = wire.AlterClientQuotasRequest
        entity = [quotas.EntityData(entity_type="user", entity_name="u")]
        op = quotas.OpData(key="producer_byte_rate", value=5000.0)
        change(cluster, quotas(entries=[quotas.EntryData(entity=entity, ops=[op])]), 1)
        scram = wire.AlterUserScramCredentialsRequest
        up = scram.ScramCredentialUpsertion(
            name="u", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        change(cluster, scram(upsertions=[up]), 0)
        cluster.nodes[FENCED].kill()
        cluster.wait_isr("t", {1, 2}, through=OURS)
        cluster.wait_isr("t", {1, 2}, through=THEIRS)
        wait_for(lambda: both_have(cluster), "both brokers to have all changes")
        yield cluster


def change(cluster: Cluster, request: Any, version: int) -> None:
    """By way of the kbroker."""
    answer = repr(ask(cluster, OURS, request, version))
    assert set(re.findall(r"error_code=(\d+)", answer)) <= {"0"}, answer


def both_have(cluster: Cluster) -> bool:
    """The last change is in both images."""
    request = wire.DescribeUserScramCredentialsRequest(users=None)
    return all("user='u'" in repr(ask(cluster, number, request, 0)) for number in (OURS, THEIRS))


def described(kind: int, name: str) -> Any:
    request = wire.DescribeConfigsRequest
    return request(
        resources=[request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)]
    )


TOPICS = wire.MetadataRequest
CLUSTER = wire.DescribeClusterRequest
ASKED = {
    "metadata": [(TOPICS(topics=None), each) for each in range(1, 14)],
    "metadata of one": [(TOPICS(topics=[TOPICS.MetadataRequestTopic(name="t")]), each) for each in range(4, 14)],
    "cluster": [(CLUSTER(), each) for each in range(3)],
    "cluster with fenced": [(CLUSTER(include_fenced_brokers=True), 2)],
    "controllers": [(CLUSTER(endpoint_type=CONTROLLER), each) for each in (1, 2)],
    "neither": [(CLUSTER(endpoint_type=NEITHER), each) for each in (1, 2)],
    "partitions": [
        (
            wire.DescribeTopicPartitionsRequest(
                topics=[wire.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("alone", "none", "t")]
            ),
            0,
        )
    ],
    "resources": [
        (wire.ListConfigResourcesRequest(resource_types=types), 1) for types in ([], [2], [16], [32], [2, 16, 32])
    ],
    "client metrics": [(described(16, "metrics"), 4)],
    "quotas": [(wire.DescribeClientQuotasRequest(components=[], strict=False), each) for each in (0, 1)],
    "users": [(wire.DescribeUserScramCredentialsRequest(users=None), 0)],
    "acls": [
        (
            wire.DescribeAclsRequest(
                resource_type_filter=1,
                pattern_type_filter=1,
                operation=1,
                permission_type=1,
                resource_name_filter=None,
                principal_filter=None,
                host_filter=None,
            ),
            each,
        )
        for each in (2, 3)
    ],
    "tokens": [(wire.DescribeDelegationTokenRequest(owners=None), each) for each in (2, 3)],
    "features": [
        (wire.ApiVersionsRequest(client_software_name="a", client_software_version="b"), each) for each in (3, 4)
    ],
    "moves": [(wire.ListPartitionReassignmentsRequest(topics=None), 0)],
}


@pytest.mark.parametrize("what", ASKED)
def test_a_kbroker_answers_as_the_other_brokers(cluster: Cluster, what: str) -> None:
    """A client would learn something else of the cluster, depending on the broker that it happens to ask."""
    for request, version in ASKED[what]:
        ours, theirs = (ask(cluster, number, request, version) for number in (OURS, THEIRS))
        if request.api_key == ApiKey.API_VERSIONS:
            # APIs and versions are `test_forwarding`'s; the epoch goes on with the log.
            ours, theirs = (
                (sorted(map(repr, each.supported_features)), sorted(map(repr, each.finalized_features)))
                for each in (ours, theirs)
            )
            assert ours == theirs, version
            continue
        assert shown(ours) == shown(theirs), (what, version)


def test_a_living_broker_is_called_the_controller(cluster: Cluster) -> None:
    """Clients send their administration there, and wait for it where it is nobody."""
    for number in (OURS, THEIRS):
        for version in range(1, 14):
            assert ask(cluster, number, TOPICS(topics=None), version).controller_id in (OURS, THEIRS)
        assert ask(cluster, number, CLUSTER(), 1).controller_id in (OURS, THEIRS)


def test_settings_of_topics_brokers_and_groups_have_the_values_that_the_log_has(cluster: Cluster) -> None:
    """A setting that was changed by way of another broker would not show, or not count, here."""
    for kind, name, key, value in (
        (2, "t", "retention.ms", "777000"),
        (4, str(OURS), "log.cleaner.backoff.ms", "16000"),
        (32, "group", "consumer.session.timeout.ms", "46000"),
    ):
        (result,) = ask(cluster, OURS, described(kind, name), 4).results
        assert {each.name: each.value for each in result.configs}[key] == value


def test_a_quorum_is_described_by_its_leader(cluster: Cluster) -> None:
    """Tools that look after controllers would have to reach them by a network of their own."""
    request = wire.DescribeQuorumRequest
    topic = request.TopicData(topic_name="__cluster_metadata", partitions=[request.PartitionData(partition_index=0)])
    for number in (OURS, THEIRS):
        answer = ask(cluster, number, request(topics=[topic]), 2)
        (partition,) = answer.topics[0].partitions
        assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, 3001)
        assert {OURS, THEIRS} <= {each.replica_id for each in partition.observers}


def test_a_topic_that_a_client_names_is_made_by_way_of_a_kbroker(cluster: Cluster) -> None:
    """Producers that count on topics coming into being would not start."""
    request = TOPICS(topics=[TOPICS.MetadataRequestTopic(name="by-itself")])
    (topic,) = ask(cluster, OURS, request, 12).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def is_there(number: int) -> bool:
        (topic,) = ask(cluster, number, request, 12).topics
        return topic.error_code == 0 and [each.leader_id for each in topic.partitions] != [-1]

    for number in (OURS, THEIRS):
        wait_for(lambda number=number: is_there(number), "the topic to be there")


SET, DELETE, APPEND, SUBTRACT, NO_SUCH = range(5)
TOPIC, OF_BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
Edits = tuple[tuple[str, int, str | None], ...]
# Kind, name ("#": the id of the broker that is asked), edits.
ALTERED: dict[str, tuple[int, str, Edits]] = {
    "a topic": (TOPIC, "t", (("retention.ms", SET, "1000"),)),
    "a topic that is none": (TOPIC, "none", (("retention.ms", SET, "1000"),)),
    "a topic without a name": (TOPIC, "", (("retention.ms", SET, "1000"),)),
    "a value that is none": (TOPIC, "t", (("retention.ms", SET, "x"),)),
    "no value": (TOPIC, "t", (("retention.ms", SET, None),)),
    "a setting that is none": (TOPIC, "t", (("no.such", SET, "1"),)),
    "a setting twice": (TOPIC, "t", (("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
    "a list": (TOPIC, "t", (("cleanup.policy", APPEND, "compact"),)),
    "no list": (TOPIC, "t", (("retention.ms", APPEND, "1"),)),
    "an operation that is none": (TOPIC, "t", (("retention.ms", NO_SUCH, "1"),)),
    "all brokers": (OF_BROKER, "", (("log.retention.ms", SET, "1000000"),)),
    "this broker": (OF_BROKER, "#", (("log.retention.ms", SET, "1000000"),)),
    "this broker's default": (OF_BROKER, "#", (("log.retention.ms", DELETE, None),)),
    "another broker": (OF_BROKER, "77", (("log.retention.ms", SET, "1000000"),)),
    "no broker": (OF_BROKER, "x", (("log.retention.ms", SET, "1000000"),)),
    "a fixed setting": (OF_BROKER, "#", (("broker.rack", SET, "r"),)),
    "a broker's setting of no sense": (OF_BROKER, "", (("num.io.threads", SET, "-1"),)),
    "another broker's logger": (LOGGER, "77", (("root", SET, "INFO"),)),
    "a level that is none": (LOGGER, "#", (("root", SET, "LOUD"),)),
    "a logger's list": (LOGGER, "#", (("root", APPEND, "INFO"),)),
    "the root logger's default": (LOGGER, "#", (("root", DELETE, None),)),
    "metrics": (METRICS, "m", (("interval.ms", SET, "60000"),)),
    "metrics of no sense": (METRICS, "m", (("interval.ms", SET, "1"),)),
    "a group": (GROUP, "g", (("consumer.session.timeout.ms", SET, "50000"),)),
    "a group of no sense": (GROUP, "g", (("consumer.session.timeout.ms", SET, "1"),)),
    "no kind": (99, "x", (("a", SET, "b"),)),
}


def altered(cluster: Cluster, number: int, *, incremental: bool) -> dict[str, int]:
    """The error of each, in one request that changes nothing."""
    answers = {}
    kind: Any = wire.IncrementalAlterConfigsRequest if incremental else wire.AlterConfigsRequest
    for what, (resource_type, name, edits) in ALTERED.items():
        configs = [
            kind.AlterableConfig(name=key, value=value, **({"config_operation": does} if incremental else {}))
            for key, does, value in edits
        ]
        resource = kind.AlterConfigsResource(
            resource_type=resource_type, resource_name=name.replace("#", str(number)), configs=configs
        )
        (row,) = ask(cluster, number, kind(resources=[resource], validate_only=True), 1).responses
        answers[what] = row.error_code
    return answers


@pytest.mark.parametrize("incremental", [True, False])
def test_changes_of_settings_are_refused_alike(cluster: Cluster, incremental: bool) -> None:
    """What one broker of the cluster takes another would refuse."""
    assert altered(cluster, OURS, incremental=incremental) == altered(cluster, THEIRS, incremental=incremental)


def test_quotas_of_changes_are_the_controllers_at_each_broker(cluster: Cluster) -> None:
    """A client would have as many shares as there are brokers, or none at all at some."""
    quotas = wire.AlterClientQuotasRequest
    for number in (OURS, THEIRS):
        client = f"maker-{number}"
        entity = [quotas.EntityData(entity_type="client-id", entity_name=client)]
        op = quotas.OpData(key="controller_mutation_rate", value=0.1)
        change(cluster, quotas(entries=[quotas.EntryData(entity=entity, ops=[op])]), 1)
        wait_for(lambda client=client: client in quotas_shown(cluster), "the quota")
        row = wire.CreateTopicsRequest.CreatableTopic
        first, second = (
            ask(
                cluster,
                number,
                wire.CreateTopicsRequest(
                    topics=[row(name=f"{client}-{each}", num_partitions=8, replication_factor=1)], timeout_ms=20000
                ),
                7,
                client,
            )
            for each in range(2)
        )
        assert first.topics[0].error_code == 0
        assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert second.throttle_time_ms > 1000


def quotas_shown(cluster: Cluster) -> str:
    """What both brokers show."""
    request = wire.DescribeClientQuotasRequest(components=[], strict=False)
    ours, theirs = (repr(ask(cluster, number, request, 1)) for number in (OURS, THEIRS))
    return ours if ours.count("maker") == theirs.count("maker") else ""
