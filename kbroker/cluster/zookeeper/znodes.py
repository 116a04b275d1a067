"""What Kafka writes into znodes, and how it is read: pure functions between values and bytes.

JSON is written as Kafka writes it, compact and with its order of keys; spaces and any order are read.  Content that
makes no sense raises `ZnodeError` with the reason; the caller decides what to go on without.

    /brokers/ids/N           {"features":{},"listener_security_protocol_map":{…},"endpoints":["L://h:p"],"rack":…,…}
    /brokers/topics/T        {"partitions":{"0":[1,2]},"topic_id":"…","adding_replicas":{},"removing_replicas":{},…}
    …/partitions/P/state     {"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1]}
    /controller              {"version":2,"brokerid":1,"timestamp":"…","kraftControllerEpoch":-1}
    /controller_epoch        a number in text
    /config/E                {"version":1,"config":{"name":"value"}}
    /config/changes/…        {"version":2,"entity_path":"topics/t1"}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kbroker.cluster.zookeeper.znode_json import (
    Json,
    ZnodeError,
    as_dict,
    as_int,
    as_list,
    as_node_ids,
    as_number,
    as_text,
    as_texts,
    json_bytes,
    json_object,
)
from kbroker.types import TopicPartition, uuid_from_text, uuid_to_text

BROKER_VERSION = 5
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""In the order of their numbers on the wire."""
_ENDPOINT = re.compile(r"([^:/]+)://(\[[^\]]+\]|[^\[\]]*?):(\d+)")


# Brokers


class BrokerEndpoint(NamedTuple):
    """Where a broker listens; `protocol` is one of SECURITY_PROTOCOLS."""

    listener: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerZnode:
    """A broker's registration."""

    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    timestamp_ms: int = 0
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    jmx_port: int = -1

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """The endpoint of a listener."""
        return next((each for each in self.endpoints if each.listener == listener), None)


def encode_broker(broker: BrokerZnode, version: int = BROKER_VERSION) -> bytes:
    """Version 5; 4 without features, 2 without listener names."""
    plain = next((each for each in broker.endpoints if each.protocol == "PLAINTEXT"), None)
    content: dict[str, Json] = {}
    if version >= 5:
        content["features"] = {
            name: {"min_version": low, "max_version": high} for name, (low, high) in broker.features.items()
        }
    if version >= 4:
        content["listener_security_protocol_map"] = {each.listener: each.protocol for each in broker.endpoints}
    content["endpoints"] = [str(each) for each in broker.endpoints]
    if broker.rack is not None and version >= 3:
        content["rack"] = broker.rack
    content["jmx_port"] = broker.jmx_port
    content["port"] = -1 if plain is None else plain.port
    content["host"] = None if plain is None else plain.host
    content["version"] = version
    content["timestamp"] = str(broker.timestamp_ms)
    return json_bytes(content)


def decode_broker(data: bytes | None) -> BrokerZnode:
    """Versions 1 to 5, and later ones as far as they are like 5.  Raises ZnodeError."""
    content = json_object(data)
    version = as_int(content.get("version"), "version", 1)
    if version == 1:
        host = as_text(content.get("host"), "host")
        endpoints: tuple[BrokerEndpoint, ...] = (
            BrokerEndpoint("PLAINTEXT", "PLAINTEXT", host, as_int(content.get("port"), "port", 0, 65535)),
        )
    else:
        protocols = as_texts(content.get("listener_security_protocol_map", {}), "listener_security_protocol_map")
        endpoints = tuple(
            _endpoint(as_text(each, "endpoint"), protocols) for each in as_list(content.get("endpoints"), "endpoints")
        )
        if not endpoints:
            raise ZnodeError("endpoints are empty")
    rack = content.get("rack")
    stamp = content.get("timestamp", "0")
    features = {}
    for name, limits in as_dict(content.get("features", {}), "features").items():
        pair = as_dict(limits, f"feature {name}")
        low, high = (as_int(pair.get(key), f"{key} of {name}", 0, 32767) for key in ("min_version", "max_version"))
        features[name] = (low, high)
    return BrokerZnode(
        endpoints,
        None if rack is None else as_text(rack, "rack"),
        int(stamp) if isinstance(stamp, str) and re.fullmatch(r"-?[0-9]{1,19}", stamp) else 0,
        features,
        as_int(content.get("jmx_port", -1), "jmx_port"),
    )


def _endpoint(text: str, protocols: Mapping[str, str]) -> BrokerEndpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise ZnodeError(f"{text!r} is no listener://host:port")
    # Before listener names, endpoints were named by their protocol.
    protocol = protocols.get(match[1], match[1])
    if protocol not in SECURITY_PROTOCOLS:
        raise ZnodeError(f"{protocol!r} is no security protocol")
    return BrokerEndpoint(match[1], protocol, match[2].strip("[]"), int(match[3]))


# The cluster and its controller


class ControllerZnode(NamedTuple):
    """Which broker is the controller.  `kraft_epoch` is 0 or more while a KRaft controller takes over."""

    node_id: int
    timestamp_ms: int = 0
    kraft_epoch: int = -1


def encode_controller(controller: ControllerZnode) -> bytes:
    """Version 2."""
    return json_bytes(
        {
            "version": 2,
            "brokerid": controller.node_id,
            "timestamp": str(controller.timestamp_ms),
            "kraftControllerEpoch": controller.kraft_epoch,
        }
    )


def decode_controller(data: bytes | None) -> ControllerZnode:
    """Versions 1 and 2."""
    content = json_object(data)
    stamp = content.get("timestamp", "0")
    return ControllerZnode(
        as_int(content.get("brokerid"), "brokerid", 0),
        int(stamp) if isinstance(stamp, str) and re.fullmatch(r"-?[0-9]{1,19}", stamp) else 0,
        as_int(content.get("kraftControllerEpoch", -1), "kraftControllerEpoch"),
    )


def encode_epoch(epoch: int) -> bytes:
    """/controller_epoch."""
    return b"%d" % epoch


def decode_epoch(data: bytes | None) -> int:
    """/controller_epoch.  Raises ZnodeError."""
    try:
        return as_number((data or b"").decode(), "the epoch")
    except UnicodeDecodeError:
        raise ZnodeError("the epoch is no text") from None


def encode_cluster_id(cluster_id: str) -> bytes:
    """/cluster/id, whose version is a text."""
    return json_bytes({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """/cluster/id.  Raises ZnodeError."""
    found = as_text(json_object(data).get("id"), "id")
    if not found:
        raise ZnodeError("id is empty")
    return found


def encode_feature(features: Mapping[str, int], is_enabled: bool = True) -> bytes:
    """/feature, version 2."""
    return json_bytes({"features": dict(features), "version": 2, "status": int(is_enabled)})


def decode_feature(data: bytes | None) -> tuple[dict[str, int], bool]:
    """The finalized levels, and whether features are enabled.  Versions 1 and 2."""
    content = json_object(data)
    levels = {}
    for name, value in as_dict(content.get("features", {}), "features").items():
        level = value.get("max_version_level") if isinstance(value, dict) else value
        levels[name] = as_int(level, f"level of {name}", 0, 32767)
    return levels, as_int(content.get("status", 0), "status") == 1


# Topics


@dataclass(frozen=True, slots=True)
class TopicZnode:
    """A topic's replicas by partition; `topic_id` is None where an old tool made the topic."""

    partitions: Mapping[int, tuple[int, ...]]
    topic_id: bytes | None = None
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def encode_topic(topic: TopicZnode) -> bytes:
    """Version 3."""
    content: dict[str, Json] = {"partitions": _assignment(topic.partitions)}
    if topic.topic_id is not None:
        content["topic_id"] = uuid_to_text(topic.topic_id)
    content["adding_replicas"] = _assignment(topic.adding)
    content["removing_replicas"] = _assignment(topic.removing)
    content["version"] = 3
    return json_bytes(content)


def _assignment(partitions: Mapping[int, Sequence[int]]) -> Json:
    return {str(index): list(replicas) for index, replicas in partitions.items() if replicas}


def decode_topic(data: bytes | None) -> TopicZnode:
    """Versions 1 to 3.  The partitions are numbered from 0 without gaps.  Raises ZnodeError."""
    content = json_object(data)
    partitions = _replicas(content.get("partitions"), "partitions")
    if set(partitions) != set(range(len(partitions))):
        raise ZnodeError("partitions are not numbered from 0 without gaps")
    if not all(partitions.values()):
        raise ZnodeError("a partition has no replicas")
    text = content.get("topic_id")
    try:
        topic_id = None if text is None else uuid_from_text(as_text(text, "topic_id"))
    except ValueError:
        raise ZnodeError("topic_id is no id") from None
    adding = _replicas(content.get("adding_replicas", {}), "adding_replicas")
    removing = _replicas(content.get("removing_replicas", {}), "removing_replicas")
    for moved in (adding, removing):
        if any(not set(replicas) <= set(partitions.get(index, ())) for index, replicas in moved.items()):
            raise ZnodeError("a replica is added or removed that is not among the partition's")
    return TopicZnode(dict(sorted(partitions.items())), topic_id, adding, removing)


def _replicas(value: Json, name: str) -> dict[int, tuple[int, ...]]:
    return {
        as_number(index, f"partition in {name}"): as_node_ids(replicas, f"replicas in {name}")
        for index, replicas in as_dict(value, name).items()
    }


class StateZnode(NamedTuple):
    """A partition's leader (-1: none) and ISR, and the epoch of the controller that wrote it last.

    `is_recovering`: the leader was elected uncleanly, and its ISR has not changed since.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    is_recovering: bool = False


def encode_state(state: StateZnode) -> bytes:
    """Version 1."""
    content: dict[str, Json] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
    }
    if state.is_recovering:
        content["leader_recovery_state"] = 1
    content["leader_epoch"] = state.leader_epoch
    content["isr"] = list(state.isr)
    return json_bytes(content)


def decode_state(data: bytes | None) -> StateZnode:
    """Version 1."""
    content = json_object(data)
    return StateZnode(
        as_int(content.get("leader"), "leader", -1),
        as_int(content.get("leader_epoch"), "leader_epoch", 0),
        as_node_ids(content.get("isr"), "isr"),
        as_int(content.get("controller_epoch"), "controller_epoch", 0),
        as_int(content.get("leader_recovery_state", 0), "leader_recovery_state", 0, 1) == 1,
    )


# Settings and notifications


def encode_config(settings: Mapping[str, str]) -> bytes:
    """/config/E."""
    return json_bytes({"version": 1, "config": dict(settings)})


def decode_config(data: bytes | None) -> dict[str, str]:
    """/config/E; one without content has no settings."""
    if not data:
        return {}
    return as_texts(json_object(data).get("config", {}), "config")


def encode_config_change(entity_path: str) -> bytes:
    """/config/changes/config_change_…, version 2."""
    return json_bytes({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes | None) -> str:
    """The entity whose settings changed: of versions 1 and 2, and of the bare name of a topic that old tools write.

    Raises ZnodeError."""
    try:
        value = json.loads((data or b"").decode())
    except (ValueError, RecursionError) as error:
        raise ZnodeError(f"no JSON: {error}") from None
    if isinstance(value, str) and value:
        return f"topics/{value}"
    content = as_dict(value, "the content")
    if as_int(content.get("version"), "version", 1) == 1:
        kind, name = (
            as_text(content.get("entity_type"), "entity_type"),
            as_text(content.get("entity_name"), "entity_name"),
        )
        return f"{kind}/{name}"
    path = as_text(content.get("entity_path"), "entity_path")
    if "/" not in path:
        raise ZnodeError("entity_path names no entity")
    return path


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """/isr_change_notification/… and /admin/preferred_replica_election."""
    named: list[Json] = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return json_bytes({"version": 1, "partitions": named})


def decode_partitions(data: bytes | None) -> list[TopicPartition]:
    """Partitions, each once."""
    found: dict[TopicPartition, None] = {}
    for each in as_list(json_object(data).get("partitions"), "partitions"):
        found[_partition(as_dict(each, "partition"))] = None
    return list(found)


def _partition(content: Mapping[str, Json]) -> TopicPartition:
    return TopicPartition(as_text(content.get("topic"), "topic"), as_int(content.get("partition"), "partition", 0))


def encode_reassignment(replicas: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """/admin/reassign_partitions."""
    named: list[Json] = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(wanted)}
        for each, wanted in replicas.items()
    ]
    return json_bytes({"version": 1, "partitions": named})


def decode_reassignment(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that partitions are to have."""
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for each in as_list(json_object(data).get("partitions"), "partitions"):
        content = as_dict(each, "partition")
        found[_partition(content)] = as_node_ids(content.get("replicas"), "replicas")
    return found


def encode_log_dir_event(node_id: int) -> bytes:
    """/log_dir_event_notification/…: a broker has lost a log directory."""
    return json_bytes({"version": 1, "broker": node_id, "event": 1})


def decode_log_dir_event(data: bytes | None) -> int:
    """The broker that has lost a log directory."""
    return as_int(json_object(data).get("broker"), "broker", 0)


class ProducerIdBlockZnode(NamedTuple):
    """The producer ids that were given out last, both ends inclusive."""

    node_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlockZnode) -> bytes:
    """/latest_producer_id_block, whose numbers are texts."""
    return json_bytes(
        {"version": 1, "broker": block.node_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlockZnode:
    """/latest_producer_id_block.  Raises ZnodeError."""
    content = json_object(data)
    block = ProducerIdBlockZnode(
        as_int(content.get("broker"), "broker"),
        as_number(as_text(content.get("block_start"), "block_start"), "block_start", 2**63 - 1),
        as_number(as_text(content.get("block_end"), "block_end"), "block_end", 2**63 - 1),
    )
    if block.last < block.first:
        raise ZnodeError("block_end is below block_start")
    return block
