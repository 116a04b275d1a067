"""A KRaft cluster whose metadata.version is that of Kafka 3.9, and its upgrade to 4.3 while everything runs.

Also of `kbroker.cluster.protocol_version`."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import response_message, wire
from tests.cluster.kraft.processes import FIRST_CONTROLLER, Cluster, Kafka, Kbroker
from tests.compat.brokers import CLUSTER_ID, java_run
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

EVERYBODY = {1, 2}
FEATURES = "org.apache.kafka.tools.FeatureCommand"
OLD, NEW = 21, 30


def ask(cluster: Cluster, number: int, request: Any, version: int) -> Any:
    with socket.create_connection(("127.0.0.1", cluster.nodes[number].port), timeout=30) as client:
        client.sendall(encode_request(request.api_key, version, 5, "c", request))
        data = client.makefile("rb")
        (size,) = struct.unpack(">i", data.read(4))
        _, answer = decode_response(response_message(request.api_key), version, data.read(size))
    return answer


def levels(cluster: Cluster, number: int) -> dict[str, int]:
    request = wire.ApiVersionsRequest(client_software_name="a", client_software_version="b")
    return {row.name: row.max_version_level for row in ask(cluster, number, request, 4).finalized_features}


def apis(cluster: Cluster, number: int) -> set[int]:
    """What a broker advertises; kbroker takes clients' metrics without a plug-in, Kafka does not."""
    found = ask(cluster, number, wire.ApiVersionsRequest(), 0).api_keys
    return {row.api_key for row in found} - {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


def heartbeats(cluster: Cluster, number: int) -> tuple[int, int, int]:
    """What the newer kinds of groups are answered by a broker: of consumers, share groups and streams."""
    asked = (
        (wire.ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0, member_id="m" * 22), 1),
        (wire.ShareGroupHeartbeatRequest(group_id="s", member_epoch=0, member_id="m" * 22), 1),
        (wire.StreamsGroupHeartbeatRequest(group_id="r", member_epoch=0, member_id="m" * 22), 0),
    )
    consumer, share, streams = (ask(cluster, number, request, version).error_code for request, version in asked)
    return consumer, share, streams


def test_a_cluster_of_an_older_level_is_served_by_it_and_upgraded_live(tmp_path: Path) -> None:
    """Brokers would speak what older ones do not know, or go on in the old way for ever."""
    cluster = Cluster(tmp_path, (Kbroker, Kafka), 1, {})
    controller = cluster.controllers[FIRST_CONTROLLER]
    folder = tmp_path / f"controller-{FIRST_CONTROLLER}"
    folder.mkdir()
    properties = folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in controller._settings.items()))
    java_run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), "-r", "3.9-IV0")
    try:
        for each in (controller, *cluster.nodes.values()):
            each.start()
        cluster.wait_known(EVERYBODY)
        cluster.create("t", [[1, 2], [2, 1]])
        cluster.wait_isr("t", EVERYBODY)
        cluster.produce("t", [f"a{number}" for number in range(100)])
        assert apis(cluster, 1) == apis(cluster, 2)
        for number in EVERYBODY:
            assert levels(cluster, number) == {"metadata.version": OLD}
            assert heartbeats(cluster, number) == (ErrorCode.UNSUPPORTED_VERSION,) * 3, number
        done = run_java(FEATURES, "--bootstrap-server", cluster.bootstrap, "upgrade", "--release-version", "4.3")
        assert done.returncode == 0, done.stdout + done.stderr
        for number in EVERYBODY:
            wait_for(lambda number=number: levels(cluster, number).get("metadata.version") == NEW, "the new level")
        assert levels(cluster, 1) == levels(cluster, 2)
        cluster.produce("t", [f"b{number}" for number in range(100)])
        cluster.wait_isr("t", EVERYBODY)
        for number in EVERYBODY:
            assert ErrorCode.UNSUPPORTED_VERSION not in heartbeats(cluster, number), number
        assert len(cluster.consume("t", 2, 200)) == 200
    finally:
        for node in cluster.everybody():
            node.kill()
