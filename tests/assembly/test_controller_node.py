"""A process with the controller role alone: `kbroker.assembly.controller_node`, `kbroker.assembly.quorum`.

Also of `kbroker.security.acl.early`, `kbroker.security.openness` and `kbroker.supervision.process`.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import uvloop

from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode
from kbroker.metadata.features import Features
from kbroker.metadata.image import ControllerImage, Endpoint, MetadataDelta
from kbroker.metadata.security_image import Acl, SecurityDelta
from kbroker.metrics.readiness import ReadyState
from kbroker.protocol.frames import encode_request
from kbroker.schemas import wire
from kbroker.security.openness import warnings_of_controllers
from kbroker.storage.directories.log_dirs import LogDirError
from tests.assembly.quorum_stand_ins import CLUSTER_ID, NODE_ID, ControllerBench, running

VOTE = wire.VoteRequest(topics=[])
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username=c password=p user_c=p;"
SASL = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": JAAS,
}
CLUSTER, CLUSTER_ACTION, DENY, ALLOW, LITERAL = 4, 9, 2, 3, 3


def test_a_controller_starts_serves_and_stops(tmp_path: Path) -> None:
    """Nothing of this node's part in a quorum would work."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            assert bench.node.readiness.state is ReadyState.READY
            port = bench.node.node.listeners.all[0].port
            assert bench.replica.endpoints == {"CONTROLLER": Endpoint("127.0.0.1", port)}
            assert bench.replica.parts.cluster_id == CLUSTER_ID
            assert (await bench.ask(VOTE, 2)).error_code == 0
            assert bench.replica.asked == [("Vote", 2)]
        assert bench.replica.steps == ["start", "leave", "close"]
        assert bench.node.readiness.state is ReadyState.STOPPING

    uvloop.run(body())


def test_other_nodes_are_answered_until_another_one_leads(tmp_path: Path) -> None:
    """The resigned leader's vote is the second of two: without it no other node is elected before its process ends."""

    async def body() -> None:
        bench = ControllerBench(tmp_path)
        await bench.node.start()
        leaving, voted = asyncio.Event(), asyncio.Event()

        async def leave() -> None:
            bench.replica.steps.append("leave")
            leaving.set()
            await voted.wait()

        bench.replica.leave = leave  # type: ignore[method-assign]
        stopping = asyncio.ensure_future(bench.node.stop())
        await leaving.wait()
        assert (await bench.ask(VOTE, 2)).error_code == 0
        voted.set()
        await stopping
        with pytest.raises(OSError, match="onnect"):
            await bench.ask(VOTE, 2)

    uvloop.run(body())


def test_a_start_waits_for_a_leader_and_a_signal_ends_it(tmp_path: Path) -> None:
    """A node would be ready that does not know its cluster, or could not be stopped while no majority is there."""

    async def body() -> None:
        bench = ControllerBench(tmp_path)
        made = bench.node.part._make_replica

        def unknowing(parts: object) -> object:
            replica = made(parts)  # type: ignore[arg-type]
            bench.replica.known.clear()
            return replica

        bench.node.part._make_replica = unknowing  # type: ignore[assignment]
        starting = asyncio.ensure_future(bench.node.start())
        await asyncio.sleep(0.1)
        assert not starting.done()
        assert bench.node.readiness.state is ReadyState.STARTING
        assert (await bench.ask(VOTE, 2)).error_code == 0  # An election needs the answer.
        bench.stopping.set()
        await starting
        await bench.node.stop()
        assert bench.replica.steps == ["start", "leave", "close"]

    uvloop.run(body())


def test_a_directory_of_no_or_another_cluster_or_node_is_refused(tmp_path: Path) -> None:
    """A voter would vote with the log of another one, or form a quorum of its own."""

    async def body() -> None:
        bench = ControllerBench(tmp_path, formats=False)
        with pytest.raises(LogDirError, match="kbroker format --cluster-id"):
            await bench.node.start()
        await bench.node.give_up()
        settings = {"node.id": NODE_ID + 1, "controller.quorum.voters": f"{NODE_ID + 1}@127.0.0.1:9093"}
        other = ControllerBench(tmp_path, settings)
        with pytest.raises(LogDirError, match="belongs to node 1"):
            await other.node.start()
        await other.node.give_up()

    uvloop.run(body())


def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    """Both would write one log, and vote twice in an epoch."""

    async def body() -> None:
        async with running(tmp_path):
            second = ControllerBench(tmp_path, formats=False)
            with pytest.raises(LogDirError, match="in use by another"):
                await second.node.start()

    uvloop.run(body())


def test_nothing_is_answered_before_authentication(tmp_path: Path) -> None:
    """A stranger that reaches the port could raise the epoch of the quorum."""

    async def body() -> None:
        async with running(tmp_path, SASL) as bench:
            for request, version in ((VOTE, 2), (wire.FetchRequest(topics=[]), 18), (wire.BrokerHeartbeatRequest(), 2)):
                with pytest.raises(asyncio.IncompleteReadError):
                    await bench.ask(request, version)
            assert bench.replica.asked == []
            hello = wire.SaslHandshakeRequest(mechanism="PLAIN")
            login = wire.SaslAuthenticateRequest(auth_bytes=b"\0c\0p")
            frames = [encode_request(17, 1, 1, "x", hello), encode_request(36, 2, 2, "x", login)]
            assert (await bench.ask(VOTE, 2, frames=frames)).error_code == 0
            assert bench.replica.asked == [("Vote", 2)]

    uvloop.run(body())


def test_only_super_users_may_act_before_the_acls_are_known(tmp_path: Path) -> None:
    """A denial that has not been read from the log yet would not count, or controllers could elect no leader."""

    async def body() -> None:
        rule = Acl(CLUSTER, "kafka-cluster", LITERAL, "User:ANONYMOUS", "*", CLUSTER_ACTION, DENY)
        settings = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
        for more, early, late in (({}, 31, 31), ({"super.users": "User:ANONYMOUS"}, 0, 0)):
            bench = ControllerBench(tmp_path, {**settings, **more})
            made = bench.node.part._make_replica

            def unknowing(parts: object, made: object = made, bench: ControllerBench = bench) -> object:
                replica = made(parts)  # type: ignore[operator]
                bench.replica.known.clear()
                return replica

            bench.node.part._make_replica = unknowing  # type: ignore[assignment]
            starting = asyncio.ensure_future(bench.node.start())
            await asyncio.sleep(0.1)
            assert (await bench.ask(VOTE, 2)).error_code == early
            cache = bench.node.part.cache
            delta = MetadataDelta(security=SecurityDelta(acls={b"1" * 16: rule}))
            cache.publish(cache.image.apply(delta), delta)
            bench.replica.known.set()
            await starting
            assert (await bench.ask(VOTE, 2)).error_code == late
            await bench.node.stop()

    uvloop.run(body())


def test_acls_are_obeyed_once_they_are_known(tmp_path: Path) -> None:
    """Brokers with rights by ACLs alone would be refused for ever."""

    async def body() -> None:
        rule = Acl(CLUSTER, "kafka-cluster", LITERAL, "User:ANONYMOUS", "*", CLUSTER_ACTION, ALLOW)
        async with running(tmp_path, AUTHORIZER) as bench:
            assert (await bench.ask(VOTE, 2)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            cache = bench.node.part.cache
            delta = MetadataDelta(security=SecurityDelta(acls={b"1" * 16: rule}))
            cache.publish(cache.image.apply(delta), delta)
            assert (await bench.ask(VOTE, 2)).error_code == 0

    uvloop.run(body())


@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ({"listeners": "CONTROLLER://:9093"}, True),
        ({"listeners": "CONTROLLER://192.0.2.1:9093"}, True),
        ({"listeners": "CONTROLLER://127.0.0.1:9093"}, False),
        ({"listeners": "CONTROLLER://:9093", **SASL}, False),
        ({"listeners": "CONTROLLER://:9093", **AUTHORIZER, "super.users": "User:c"}, False),
        ({"listeners": "CONTROLLER://:9093", **AUTHORIZER, "super.users": "User:ANONYMOUS"}, True),
        ({"listeners": "CONTROLLER://:9093", **AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}, True),
        ({"listeners": "CONTROLLER://:9093", "listener.security.protocol.map": "CONTROLLER:SSL"}, True),
        ({"listeners": "CONTROLLER://:9093", "listener.security.protocol.map": "CONTROLLER:SSL",
          "ssl.client.auth": "required"}, False),
    ],
)  # fmt: skip
def test_a_start_warns_where_strangers_may_take_the_lead(settings: dict[str, str], warns: bool) -> None:
    """An operator would not know that a port scan can stop the cluster."""
    values = {"process.roles": "controller", "controller.listener.names": "CONTROLLER", "node.id": "1"}
    voters = {"controller.quorum.voters": "1@h:9093", "log.dirs": "/nowhere"}
    found = list(warnings_of_controllers(BrokerConfig.from_mapping({**values, **voters, **settings})))
    assert bool(found) == warns
    assert all("raise the quorum's epoch" in each for each in found)


def test_the_warning_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It would be known to this test alone."""

    async def body() -> None:
        async with running(tmp_path, {"listeners": "CONTROLLER://0.0.0.0:0"}) as bench:
            assert bench.replica.endpoints["CONTROLLER"].host not in {"", "0.0.0.0"}

    with caplog.at_level(logging.WARNING, "kbroker.broker"):
        uvloop.run(body())
    assert "does not authenticate" in caplog.text


def test_metrics_and_readiness_are_served(tmp_path: Path) -> None:
    """Nothing would tell that a controller lives, or how far it is."""

    async def body() -> None:
        async with running(tmp_path, {"metrics.listener": "http://127.0.0.1:0"}) as bench:
            await bench.ask(VOTE, 2)
            served = bench.node.node.metrics
            assert served is not None

            def read(path: str) -> str:
                with urllib.request.urlopen(f"http://127.0.0.1:{served.port}{path}", timeout=10) as answer:
                    return str(answer.read().decode())

            assert (await asyncio.to_thread(read, "/readyz")) == "ready\n"
            text = await asyncio.to_thread(read, "/metrics")
            assert "kbroker_metadata_leader 1" in text
            assert 'kbroker_requests_total{api="Vote"} 1' in text

    uvloop.run(body())


def test_controllers_are_described_as_they_have_registered(tmp_path: Path) -> None:
    """kafka-cluster and AdminClient by controllers would find no node, or one that they do not reach."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            cache = bench.node.part.cache
            controllers = {
                1: ControllerImage(1, {"CONTROLLER": Endpoint("a", 9093)}),
                2: ControllerImage(2, {"CONTROLLER": Endpoint("b", 9094), "OTHER": Endpoint("c", 1)}),
                3: ControllerImage(3, {"OTHER": Endpoint("c", 1)}),
            }
            features = Features(7, {"metadata.version": 30}, cache.image.features.table)
            delta = MetadataDelta(controllers=controllers, features=features)
            cache.publish(cache.image.apply(delta), delta)
            answer = await bench.ask(wire.DescribeClusterRequest(endpoint_type=2), 2)
            assert (answer.error_code, answer.cluster_id, answer.controller_id, answer.endpoint_type) == (
                0, CLUSTER_ID, 1, 2,
            )  # fmt: skip
            assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [
                (1, "a", 9093),
                (2, "b", 9094),
            ]
            bench.replica.leader_id = 3
            assert (await bench.ask(wire.DescribeClusterRequest(endpoint_type=2), 2)).controller_id == -1
            wrong = await bench.ask(wire.DescribeClusterRequest(endpoint_type=1), 1)
            assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            assert wrong.error_message == (
                "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
            )
            assert (await bench.ask(wire.DescribeClusterRequest(), 0)).error_code == ErrorCode.INVALID_REQUEST
            unknown = await bench.ask(wire.DescribeClusterRequest(endpoint_type=9), 1)
            assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE

    uvloop.run(body())


def test_a_controller_loads_nothing_of_a_brokers() -> None:
    """It would take the memory of a broker, and its time at the start."""
    rooms = (
        "kbroker.broker",
        "kbroker.console",
        "kbroker.coordinator.",
        "kbroker.replication.",
        "kbroker.storage.cleaner",
        "kbroker.storage.log.log_segment",
        "kbroker.storage.log.unified_log",
        "kbroker.storage.manager",
        "kbroker.storage.reports",
    )
    script = (
        "import sys, kbroker.supervision.process, kbroker.assembly.controller_node\n"
        "from kbroker.handlers.dispatch import controller_rows\n"
        f"controller_rows(); print([each for each in sys.modules if each.startswith({rooms})])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_kbroker_start_starts_a_controller(tmp_path: Path) -> None:
    """The command would start a broker in its place."""
    settings = {
        "process.roles": "controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:0",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "node.id": "1",
        "log.dirs": str(tmp_path / "data"),
        "metrics.listener": "none",
    }
    command = [sys.executable, "-m", "kbroker.cli", "start"]
    for key, value in settings.items():
        command += ["--override", f"{key}={value}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "does not say which cluster this controller belongs to" in ended.stdout + ended.stderr
