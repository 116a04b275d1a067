"""Admin handlers where Kafka's recorded answers do not reach: every version, addresses, several brokers, failures.

Also of `kbroker.handlers.topics.config_entries`, `kbroker.handlers.topics.config_resources`,
`kbroker.handlers.topics.loggers`, `kbroker.handlers.cluster.log_dirs`, `kbroker.handlers.topics.topic_partitions`,
`kbroker.handlers.cluster.features`, `kbroker.metadata.group_configs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode, NotControllerError
from kbroker.handlers.api_versions import unsupported_version_response
from kbroker.handlers.table import Handler, advertised_ranges, narrowed
from kbroker.handlers.topics import configs
from kbroker.metadata.features import METADATA_VERSION, served_features
from kbroker.metadata.image import BrokerImage, BrokersImage, Endpoint, MetadataDelta, PartitionImage, TopicImage
from kbroker.protocol.api import ApiKey
from kbroker.schemas import message
from kbroker.types import random_uuid
from tests.handlers.admin_broker import HANDLERS, NODE_ID, AdminBroker, Connection

SOFTWARE = {"client_software_name": "librdkafka", "client_software_version": "2.16.0"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    broker = AdminBroker.start(tmp_path)
    yield broker
    broker.stop()


def _create(broker: AdminBroker, *names: str, partitions: int = 1) -> None:
    topics = [
        {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        for name in names
    ]
    answer = broker.ask("CreateTopics", 4, {"topics": topics})
    assert {result["error_code"] for result in answer["topics"]} == {0}


def _reach(broker: AdminBroker, *brokers: BrokerImage) -> None:
    """Give the cluster other brokers."""
    cache = broker.services.metadata_cache
    all_brokers = {broker.node_id: broker for broker in (*cache.image.brokers.values(), *brokers)}
    cache.apply(MetadataDelta(brokers=BrokersImage(all_brokers, NODE_ID)))


MINIMAL: dict[str, dict[str, Any]] = {
    "ApiVersions": {},
    "Metadata": {"topics": []},
    "CreateTopics": {"topics": [{"name": "bad name", "num_partitions": 1, "replication_factor": 1}]},
    "CreatePartitions": {"topics": [{"name": "nope", "count": 2}]},
    "DeleteTopics": {},
    "DescribeConfigs": {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]},
    "DescribeCluster": {},
    "DescribeTopicPartitions": {"topics": [{"name": "nope"}]},
    "InitProducerId": {"transactional_id": None, "transaction_timeout_ms": 1},
}


@pytest.mark.parametrize("api", sorted(MINIMAL))
def test_every_served_version_has_an_answer_that_encodes(broker: AdminBroker, api: str) -> None:
    """A client with another version than the newest would get a closed connection."""
    row = HANDLERS[message(f"{api}Request").api_key]
    for version in range(row.min_version, row.max_version + 1):
        request = dict(MINIMAL[api])
        if api == "DeleteTopics":
            request = {"topics": [{"name": "nope"}]} if version >= 6 else {"topic_names": ["nope"]}
        if api == "ApiVersions" and version >= 3:
            request = dict(SOFTWARE)
        assert broker.ask(api, version, request)


def test_api_versions_advertises_what_is_served(broker: AdminBroker) -> None:
    """A client would use an API that is not there, or not use one that is."""
    answer = broker.ask("ApiVersions", 4, SOFTWARE)
    ranges = {line["api_key"]: (line["min_version"], line["max_version"]) for line in answer["api_keys"]}
    # Those of client metrics are shown while there is a subscription (tests/telemetry).
    hidden = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert ranges == {key: (row.min_version, row.max_version) for key, row in HANDLERS.items() if key not in hidden}
    served = set(served_features())
    assert {feature["name"] for feature in answer["finalized_features"]} == served
    assert {feature["name"] for feature in answer["supported_features"]} == served
    old = broker.ask("ApiVersions", 3, SOFTWARE)
    assert [feature["name"] for feature in old["supported_features"]] == [METADATA_VERSION]
    assert old["finalized_features"] == answer["finalized_features"]
    assert answer["finalized_features_epoch"] >= 0
    assert broker.ask("ApiVersions", 0, {}) == {"error_code": 0, "api_keys": answer["api_keys"]}


@pytest.mark.parametrize(("name", "version"), [("", ""), ("-bad", "1"), ("ok", "bad version"), ("ok", "")])
def test_api_versions_refuses_what_kafka_refuses(broker: AdminBroker, name: str, version: str) -> None:
    """A client's bug would pass here and fail on Kafka."""
    answer = broker.ask("ApiVersions", 3, {"client_software_name": name, "client_software_version": version})
    assert (answer["error_code"], answer["api_keys"]) == (ErrorCode.INVALID_REQUEST, [])


def test_an_unknown_version_of_api_versions_is_answered_byte_for_byte_as_kafka_does(broker: AdminBroker) -> None:
    """A client newer than the broker would not find a version that both know."""
    answer = unsupported_version_response(broker.services)
    body = message("ApiVersionsResponse").program(0).encode(answer)
    assert body.hex() == "002300000001001200000004"


def test_the_table_refuses_two_handlers_for_one_api() -> None:
    """Which handler serves would depend on the order of imports."""

    def handle(_ctx: Any, _request: Any) -> None:
        return None

    with pytest.raises(ValueError, match="two handlers claim API 3"):
        advertised_ranges([Handler(3, 0, 1, handle), Handler(3, 2, 3, handle)])
    with pytest.raises(ValueError, match="no range"):
        Handler(3, 2, 1, handle)
    assert advertised_ranges([Handler(0, 3, 13, handle, advertised_min_version=0)]) == ((0, 0, 13),)


def test_versions_can_be_narrowed() -> None:
    """An operator could not keep clients of old versions away, or would not be told of a misspelt one."""

    def handle(ctx: Any, request: Any) -> None:
        return None

    rows = [Handler(0, 0, 13, handle), Handler(1, 4, 18, handle), Handler(18, 0, 4, handle)]

    def left(*ranges: str) -> list[tuple[int, int]]:
        return [(row.min_version, row.max_version) for row in narrowed(rows, ranges)]

    assert left() == [(0, 13), (4, 18), (0, 4)]
    assert left("Produce:3-12", " Fetch:7- ") == [(3, 12), (7, 18), (0, 4)]
    assert left("Fetch:0-99") == [(0, 13), (4, 18), (0, 4)]
    assert left("Produce:5") == [(5, 5), (4, 18), (0, 4)]
    for text in (
        "Produce",
        "Produce:",
        "produce:3-",
        "Produce:14-",
        "Fetch:0-3",
        "Nothing:1-2",
        "ApiVersions:3-",
        "1:2-3",
    ):
        with pytest.raises(ValueError, match=r"kbroker\.api\.versions"):
            left(text)


@pytest.mark.parametrize(
    ("dialled", "told"),
    [("192.168.7.9", "192.168.7.9"), ("::ffff:10.0.0.5", "10.0.0.5"), ("::1", "::1"), ("fe80::1", "fe80::1")],
)
def test_a_client_is_told_the_address_that_it_dialled(broker: AdminBroker, dialled: str, told: str) -> None:
    """A client on another machine or in another container would be sent to an address that is not its broker's."""
    broker.connection = Connection(local_host=dialled, local_port=19092)
    (metadata_broker,) = broker.ask("Metadata", 13, {"topics": []})["brokers"]
    (cluster_broker,) = broker.ask("DescribeCluster", 2, {})["brokers"]
    for answered in (metadata_broker, cluster_broker):
        assert (answered["host"], answered["port"]) == (told, 19092)


def test_advertised_listeners_win(tmp_path: Path) -> None:
    """A broker behind a proxy would send clients around it."""
    settings = {
        "listeners": "INSIDE://0.0.0.0:9092,OUTSIDE://0.0.0.0:9093",
        "advertised.listeners": "INSIDE://in.example:9092,OUTSIDE://out.example:443",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "broker.rack": "r1",
    }
    broker = AdminBroker.start(tmp_path, settings)
    for listener, host, port in (("INSIDE", "in.example", 9092), ("OUTSIDE", "out.example", 443)):
        broker.connection = Connection(local_host="10.1.1.1", local_port=9092, listener_name=listener)
        (answered,) = broker.ask("Metadata", 13, {"topics": []})["brokers"]
        assert answered == {"node_id": NODE_ID, "host": host, "port": port, "rack": "r1"}
    broker.stop()


def test_partitions_of_other_brokers_are_told_as_this_client_can_use_them(broker: AdminBroker) -> None:
    """A client would wait for a leader that it cannot reach, without being told."""
    _reach(
        broker,
        BrokerImage(2, {"PLAINTEXT": Endpoint("two", 9092)}, rack="b"),
        BrokerImage(3, {"OTHER": Endpoint("three", 9092)}),
        BrokerImage(4, {"PLAINTEXT": Endpoint("four", 9092)}, is_fenced=True),
    )
    replicas = [(2, (2, 1)), (3, (3, 1)), (-1, (4,)), (1, (1, 4))]
    partitions = tuple(PartitionImage(n, leader, 5, nodes, nodes) for n, (leader, nodes) in enumerate(replicas))
    topic = TopicImage("spread", random_uuid(), partitions)
    cache = broker.services.metadata_cache
    cache.publish(cache.image.with_topics(MetadataDelta(created=(topic,))), MetadataDelta(created=(topic,)))

    def asked(version: int) -> list[tuple[int, int, list[int], list[int]]]:
        answer = broker.ask("Metadata", version, {"topics": [{"name": "spread"}]})
        assert [answered["node_id"] for answered in answer["brokers"]] == [1, 2]
        return [
            (p["error_code"], p["leader_id"], p["replica_nodes"], p.get("offline_replicas", []))
            for p in answer["topics"][0]["partitions"]
        ]

    assert asked(13) == [(0, 2, [2, 1], []), (72, -1, [3, 1], [3]), (5, -1, [4], [4]), (0, 1, [1, 4], [4])]
    assert asked(5)[1][0] == ErrorCode.LEADER_NOT_AVAILABLE
    assert asked(0) == [(0, 2, [2, 1], []), (5, -1, [1], []), (5, -1, [], []), (9, 1, [1], [])]


def test_fenced_brokers_are_described_when_asked_for(broker: AdminBroker) -> None:
    """An operator would not see which brokers are fenced."""
    _reach(broker, BrokerImage(2, {"PLAINTEXT": Endpoint("two", 9092)}, is_fenced=True))
    assert [b["broker_id"] for b in broker.ask("DescribeCluster", 2, {})["brokers"]] == [1]
    described = broker.ask("DescribeCluster", 2, {"include_fenced_brokers": True})["brokers"]
    assert [(b["broker_id"], b["is_fenced"]) for b in described] == [(1, False), (2, True)]


def test_metadata_v0_without_names_means_all_topics(broker: AdminBroker) -> None:
    """The oldest clients would see an empty cluster."""
    _create(broker, "a", "b")
    assert [topic["name"] for topic in broker.ask("Metadata", 0, {"topics": []})["topics"]] == ["a", "b"]
    assert broker.ask("Metadata", 1, {"topics": []})["topics"] == []
    assert len(broker.ask("Metadata", 1, {"topics": None})["topics"]) == 2


def test_offsets_topic_made_by_a_client_has_its_own_settings(broker: AdminBroker) -> None:
    """Committed offsets would be deleted after a week."""
    broker.ask("Metadata", 13, {"topics": [{"name": "__consumer_offsets"}]})
    answer = broker.ask("Metadata", 13, {"topics": [{"name": "__consumer_offsets"}]})
    assert len(answer["topics"][0]["partitions"]) == 50
    assert answer["topics"][0]["is_internal"]
    topic = broker.services.metadata_cache.topic("__consumer_offsets")
    assert topic is not None
    assert topic.configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize("at_once", [False, True])
def test_a_created_topic_is_in_the_answer_only_where_a_setting_says_so(at_once: bool, tmp_path: Path) -> None:
    """Suites written for Kafka expect its UNKNOWN_TOPIC_OR_PARTITION; a client that asks once wants the topic."""
    broker = AdminBroker.start(tmp_path, {"kbroker.auto.create.answers.at.once": at_once} if at_once else {})
    try:
        asked = {"topics": [{"name": "new"}, {"name": "not a name"}], "allow_auto_topic_creation": True}
        first, second = (broker.ask("Metadata", 12, asked)["topics"] for _ in range(2))
    finally:
        broker.stop()
    wanted = ErrorCode.NONE if at_once else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = {topic["name"]: (topic["error_code"], len(topic.get("partitions", ()))) for topic in first}
    assert found == {"new": (wanted, 4 if at_once else 0), "not a name": (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)}
    assert [topic["error_code"] for topic in second if topic["name"] == "new"] == [ErrorCode.NONE]


@pytest.mark.parametrize("name", ["x" * 0x7FFF, "\u20ac" * 0x2AAA])
def test_an_answer_that_quotes_a_long_name_can_be_sent(broker: AdminBroker, name: str) -> None:
    """The connection was closed: the text around the name made it longer than a string may be."""
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    created = broker.ask("CreateTopics", 7, {"topics": [topic]})["topics"][0]
    assert created["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert name[:100] in created["error_message"]
    for resource_type in (2, 4, 8, 16, 32):
        resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
        refused = broker.ask("DescribeConfigs", 4, {"resources": [resource]})["results"][0]["error_code"]
        # Groups and client metrics have settings by any name.
        assert bool(refused) == (resource_type < 16)


def test_a_failing_store_is_answered_not_raised(broker: AdminBroker) -> None:
    """Every client would be disconnected as long as the disk is full."""
    _create(broker, "a")
    broker.store.close()
    topic = {"name": "b", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    created = broker.ask("CreateTopics", 7, {"topics": [topic], "timeout_ms": 5000})["topics"][0]
    assert created["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
    assert "cannot use the metadata store" in created["error_message"]
    growth = {"topics": [{"name": "a", "count": 2, "assignments": None}], "timeout_ms": 5000}
    grown = broker.ask("CreatePartitions", 3, growth)
    assert grown["results"][0]["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
    deleted = broker.ask("DeleteTopics", 6, {"topics": [{"name": "a"}], "timeout_ms": 5000})
    assert deleted["responses"][0]["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
    found = broker.ask("Metadata", 13, {"topics": [{"name": "auto"}, {"name": "a"}]})["topics"]
    assert [(topic["name"], topic["error_code"]) for topic in found] == [("a", 0), ("auto", 56)]
    requested = {"transactional_id": None, "transaction_timeout_ms": 1}
    assert broker.ask("InitProducerId", 5, requested)["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_broker_that_is_not_the_controller_does_not_say_which_topics_there_are_to_delete(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has yet to hear of a new topic would say that there is none, and the topic be taken for deleted."""

    def refuse(_: object) -> None:
        raise NotControllerError()

    _create(broker, "a")
    monkeypatch.setattr(type(broker.services.controller), "image", refuse)
    for name in ("a", "unheard"):
        asked = {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": 5000}
        for version in (1, 6):
            answer = broker.ask("DeleteTopics", version, {**asked, "topics": asked["topics"] if version > 5 else []})
            (row,) = answer["responses"]
            assert (row["name"], row["error_code"]) == (name, ErrorCode.NOT_CONTROLLER)


@pytest.mark.parametrize(
    ("api", "version", "edit"), [("AlterConfigs", 2, {}), ("IncrementalAlterConfigs", 1, {"config_operation": 0})]
)
def test_settings_that_a_controller_elsewhere_cannot_take_now_are_refused_one_by_one(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch, api: str, version: int, edit: dict[str, int]
) -> None:
    """An administrator's connection would end without a word on what is to be sent again."""

    async def go_away(*_: object) -> None:
        raise NotControllerError()

    for name in ("a", "b"):
        _create(broker, name)
    monkeypatch.setattr(type(broker.services.controller), "alter_configs", go_away)
    resources = [
        {
            "resource_type": 2,
            "resource_name": name,
            "configs": [{"name": "segment.ms", "value": value, **edit}],
        }
        for name, value in (("a", "1000"), ("b", "none"))
    ]
    rows = broker.ask(api, version, {"resources": resources, "validate_only": False})["responses"]
    assert [row["error_code"] for row in rows] == [ErrorCode.NOT_CONTROLLER] * 2


def test_documentation_and_defaults_are_described(broker: AdminBroker) -> None:
    """`kafka-configs --describe` would show settings without a word on what they do."""
    _create(broker, "a")
    request = {
        "resources": [{"resource_type": 2, "resource_name": "a", "configuration_keys": ["segment.ms"]}],
        "include_documentation": True,
    }
    (config,) = broker.ask("DescribeConfigs", 4, request)["results"][0]["configs"]
    assert config["documentation"]
    old = {"resources": [{"resource_type": 2, "resource_name": "a", "configuration_keys": ["segment.ms"]}]}
    (config,) = broker.ask("DescribeConfigs", 0, old)["results"][0]["configs"]
    assert config["is_default"] is True


def test_pages_of_partitions_join_to_the_whole(broker: AdminBroker) -> None:
    """A tool that reads page by page would miss or repeat partitions."""
    for name, count in (("a", 3), ("b", 1), ("c", 7), ("d", 2)):
        _create(broker, name, partitions=count)
    everything = [(name, n) for name, count in (("a", 3), ("b", 1), ("c", 7), ("d", 2)) for n in range(count)]
    for limit in range(1, 15):
        seen: list[tuple[str, int]] = []
        cursor = None
        while True:
            request: dict[str, Any] = {"topics": [], "response_partition_limit": limit, "cursor": cursor}
            answer = broker.ask("DescribeTopicPartitions", 0, request)
            page = [(t["name"], p["partition_index"]) for t in answer["topics"] for p in t["partitions"]]
            assert len(page) <= limit
            seen += page
            cursor = answer["next_cursor"]
            if cursor is None:
                break
        assert seen == everything


def test_one_request_makes_a_bounded_number_of_topics(broker: AdminBroker) -> None:
    """A consumer's list of a thousand mistyped names would stall every other client while their logs are made."""
    names = [f"topic-{number}" for number in range(100)]
    request = {"topics": [{"name": name} for name in names]}
    counts: list[int] = []
    while not counts or counts[-1] < len(names):
        answered = broker.ask("Metadata", 13, request)["topics"]
        assert len(answered) == len(names)
        assert {topic["error_code"] for topic in answered} <= {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        counts.append(sum(topic["error_code"] == 0 for topic in answered))
    assert counts[:4] == [0, 16, 32, 48]


def test_one_request_describes_a_bounded_number_of_settings(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of some kilobytes would make an answer of gigabytes."""
    monkeypatch.setattr(configs, "MAX_ENTRIES", 1000)
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    results = broker.ask("DescribeConfigs", 4, {"resources": [resource] * 40})["results"]
    assert len(results) == 40
    assert results[0]["error_code"] == 0
    assert results[-1]["error_code"] == ErrorCode.POLICY_VIOLATION
    assert sum(len(result["configs"]) for result in results) <= 1000


def test_settings_of_one_topic_do_not_show_at_another(broker: AdminBroker) -> None:
    """An operator would read one topic's retention at another."""
    for name, given in (("a", [{"name": "retention.ms", "value": "7"}]), ("b", [])):
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": given}
        broker.ask("CreateTopics", 7, {"topics": [topic]})
    resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in ("b", "a", "b")]
    described = broker.ask("DescribeConfigs", 4, {"resources": resources, "include_synonyms": True})["results"]
    found = [next(c for c in result["configs"] if c["name"] == "retention.ms")["value"] for result in described]
    assert found == ["604800000", "7", "604800000"]
    assert [c["name"] for c in described[1]["configs"]] == sorted(c["name"] for c in described[0]["configs"])


def test_client_metrics_tell_clients_apart_by_their_software(broker: AdminBroker) -> None:
    """An operator who asks one kind of client for its metrics would get none, or those of all."""
    configs = [
        {"name": "metrics", "config_operation": 0, "value": "a"},
        {"name": "match", "config_operation": 0, "value": "client_software_name=mine"},
    ]
    resource = {"resource_type": 16, "resource_name": "s", "configs": configs}
    assert broker.ask("IncrementalAlterConfigs", 1, {"resources": [resource]})["responses"][0]["error_code"] == 0
    for name, wanted in (("other", []), ("mine", ["a"])):
        broker.ask("ApiVersions", 3, {"client_software_name": name, "client_software_version": "1"})
        answer = broker.ask("GetTelemetrySubscriptions", 0, {"client_instance_id": "00" * 16})
        assert answer["requested_metrics"] == wanted
