"""`kbroker cluster quorum`, by brokers and by controllers whose answers the test decides.

Also of `kbroker.cli.cluster.quorum_commands`, `kbroker.cli.cluster.quorum`, `kbroker.client.controllers`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.main import run
from kbroker.errors import ErrorCode
from kbroker.schemas import wire
from kbroker.types import uuid_from_text
from tests.cluster.kraft.stand_in import Controller
from tests.ports import free_port

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
IDS = [uuid_from_text(f"0dHR0dHR0dHR0dHR0dELu{letter}") for letter in "Qgw"]
LEADER = 3002


class Cluster:
    """Answers as node 3002 of a quorum; `wrong` are errors by the class of the answer."""

    def __init__(self) -> None:
        self.port = 0
        self.leader = LEADER
        self.wrong: dict[type[Any], tuple[int, str]] = {}

    def serve(self, asked: Any) -> Any:
        match asked:
            case wire.MetadataRequest():
                return self._brokers()
            case wire.DescribeClusterRequest():
                return self._nodes(wire.DescribeClusterResponse)
            case wire.DescribeQuorumRequest():
                return self._quorum()
            case wire.AddRaftVoterRequest():
                return self._done(wire.AddRaftVoterResponse)
            case wire.RemoveRaftVoterRequest():
                return self._done(wire.RemoveRaftVoterResponse)
        return None

    def _done(self, kind: type[Any]) -> Any:
        code, text = self.wrong.get(kind, (0, ""))
        return kind(error_code=code, error_message=text or None)

    def _brokers(self) -> Any:
        made = wire.MetadataResponse
        broker = made.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port, rack=None)
        return made(brokers=[broker], cluster_id=CLUSTER_ID, controller_id=1, topics=[])

    def _nodes(self, kind: type[Any]) -> Any:
        code, text = self.wrong.get(kind, (0, ""))
        nodes = [
            kind.DescribeClusterBroker(broker_id=LEADER, host="127.0.0.1", port=self.port, rack=None),
            kind.DescribeClusterBroker(broker_id=3001, host="127.0.0.1", port=1, rack=None),
        ]
        return kind(
            error_code=code,
            error_message=text or None,
            cluster_id=CLUSTER_ID,
            controller_id=self.leader,
            brokers=[] if code else nodes,
        )

    def _quorum(self) -> Any:
        made = wire.DescribeQuorumResponse
        code, text = self.wrong.get(made, (0, ""))
        voters = [self._state(3001, 0, 90, 4_000), self._state(LEADER, 1, 100, 5_000), self._state(3003, 2, 100, 5_000)]
        observer = made.ReplicaState(
            replica_id=1, log_end_offset=99, last_fetch_timestamp=-1, last_caught_up_timestamp=-1
        )
        partition = made.PartitionData(
            error_code=code,
            error_message=text or None,
            leader_id=LEADER,
            leader_epoch=7,
            high_watermark=98,
            current_voters=voters,
            observers=[observer],
        )
        at = made.Listener(name="CONTROLLER", host="::1", port=9093)
        return made(
            error_message=None,
            topics=[made.TopicData(topic_name="__cluster_metadata", partitions=[partition])],
            nodes=[made.Node(node_id=LEADER, listeners=[at])],
        )

    @staticmethod
    def _state(node_id: int, at: int, end: int, caught_up: int) -> Any:
        return wire.DescribeQuorumResponse.ReplicaState(
            replica_id=node_id,
            replica_directory_id=IDS[at],
            log_end_offset=end,
            last_fetch_timestamp=6_000,
            last_caught_up_timestamp=caught_up,
        )


class Served:
    """A running stand-in, and what was asked of it."""

    def __init__(self, cluster: Cluster, controller: Controller, loop: asyncio.AbstractEventLoop) -> None:
        self.cluster = cluster
        self.controller = controller
        self._loop = loop

    def run(self, *words: str) -> int:
        """A command; its exit status."""
        return self._loop.run_until_complete(asyncio.to_thread(run, ["cluster", "quorum", *words]))

    def asked(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.controller.asked if isinstance(each, kind)]


@contextmanager
def serving(versions: str) -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    cluster = Cluster()
    controller = Controller(cluster.serve, versions)
    loop.run_until_complete(controller.start())
    cluster.port = controller.port
    yield Served(cluster, controller, loop)
    loop.run_until_complete(controller.stop())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.fixture(name="brokers")
def _brokers() -> Iterator[Served]:
    with serving("50-ApiVersions-4-broker") as served:
        yield served


@pytest.fixture(name="controllers")
def _controllers() -> Iterator[Served]:
    with serving("51-ApiVersions-4-controller") as served:
        yield served


@pytest.fixture(name="properties")
def _properties(tmp_path: Path) -> Path:
    """A controller's settings, whose directories are formatted."""
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=controller\nnode.id=3004\ncontroller.quorum.bootstrap.servers=a:1\n"
        "listeners=CONTROLLER://10.0.0.4:9093,INTERNAL://:9094\ncontroller.listener.names=CONTROLLER,INTERNAL\n"
        f"listener.security.protocol.map=INTERNAL:SSL,CONTROLLER:PLAINTEXT\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
        f"metadata.log.dir={tmp_path}/b\n"
    )
    assert run(["format", "-t", CLUSTER_ID, "-N", str(path)]) == 0
    return path


def directory_id(properties: Path) -> bytes:
    text = (properties.parent / "b" / "meta.properties").read_text()
    return uuid_from_text(text.partition("directory.id=")[2].splitlines()[0])


# Describe


@pytest.mark.parametrize("by", ["brokers", "controllers"])
def test_the_quorum_is_described(by: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator who removes a controller would not see whether the others have the log."""
    served: Served = request.getfixturevalue(by)
    where = ("-b" if by == "brokers" else "--controller", f"127.0.0.1:{served.controller.port}")
    assert served.run("describe", *where, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {key: value for key, value in found.items() if key != "replicas"} == {
        "cluster_id": CLUSTER_ID,
        "leader": LEADER,
        "epoch": 7,
        "high_watermark": 98,
        "max_follower_lag": 10,
        "max_follower_lag_ms": 1_000,
    }
    assert [(each["id"], each["role"], each["lag"], each["endpoints"]) for each in found["replicas"]] == [
        (3002, "leader", 0, ["CONTROLLER://[::1]:9093"]),
        (3001, "follower", 10, []),
        (3003, "follower", 0, []),
        (1, "observer", 1, []),
    ]
    assert found["replicas"][0]["directory_id"] == "0dHR0dHR0dHR0dHR0dELug"
    assert found["replicas"][3]["directory_id"] is None
    assert served.run("describe", *where) == 0
    out = capsys.readouterr().out
    assert "controller 3002 is active, in epoch 7" in out and "lacks 10 records, and is 1000 ms behind" in out
    assert "1970-01-01 00:00:06.000Z" in out
    assert served.run("describe", *where, "--status") == 0
    assert "follower" not in capsys.readouterr().out
    assert served.run("describe", *where, "--replication", "--json") == 0
    assert json.loads(capsys.readouterr().out) == found["replicas"]
    assert served.run("describe", *where, "--replication", "--status") == 2


def test_a_refusal_is_said_in_words(brokers: Served, controllers: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """A quorum without a leader would end in a traceback."""
    brokers.cluster.wrong[wire.DescribeQuorumResponse] = (ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    assert brokers.run("describe", "-b", f"127.0.0.1:{brokers.controller.port}") == 1
    assert "NOT_LEADER_OR_FOLLOWER" in capsys.readouterr().err
    at = f"127.0.0.1:{controllers.controller.port}"
    controllers.cluster.leader = -1
    assert controllers.run("describe", "--controller", at) == 1
    assert f"the controller at {at} knows no active one at the moment" in capsys.readouterr().err
    wrong = controllers.cluster.wrong
    wrong[wire.DescribeClusterResponse] = (ErrorCode.MISMATCHED_ENDPOINT_TYPE, "")
    assert controllers.run("describe", "--controller", at) == 1
    assert f"{at} is the address of a broker, and not of a controller" in capsys.readouterr().err
    wrong[wire.DescribeClusterResponse] = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
    assert controllers.run("describe", "--controller", at) == 1
    assert "CLUSTER_AUTHORIZATION_FAILED: no" in capsys.readouterr().err
    # Below metadata.version 3.7 controllers do not describe the cluster.
    wrong[wire.DescribeClusterResponse] = (ErrorCode.UNSUPPORTED_VERSION, "")
    assert controllers.run("describe", "--controller", at, "--json") == 0
    assert json.loads(capsys.readouterr().out)["cluster_id"] is None


def test_the_next_address_is_asked(controllers: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """The first controller of the list is the one that has failed."""
    at = f"127.0.0.1:{controllers.controller.port}"
    assert controllers.run("describe", "--controller", f"127.0.0.1:{free_port()},{at}", "--status") == 0
    assert "3002 is active" in capsys.readouterr().out
    assert controllers.run("describe", "--controller", f"127.0.0.1:{free_port()}") == 1
    assert "Connection refused" in capsys.readouterr().err
    assert controllers.run("describe", "--controller", at, "-b", at) == 2


# Add and remove


@pytest.mark.parametrize("by", ["brokers", "controllers"])
def test_a_controller_is_added_as_its_settings_and_directories_say(
    by: str, properties: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another directory's id, or an address that no node reaches, would make a voter that never votes."""
    served: Served = request.getfixturevalue(by)
    where = ("-b" if by == "brokers" else "--controller", f"127.0.0.1:{served.controller.port}")
    capsys.readouterr()
    assert served.run("add", str(properties), *where, "--dry-run") == 0
    assert "would be added" in capsys.readouterr().out
    assert not served.asked(wire.AddRaftVoterRequest)
    assert served.run("add", str(properties), *where, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["id"], found["added"], found["endpoints"]) == (
        3004,
        True,
        ["CONTROLLER://10.0.0.4:9093", "INTERNAL://localhost:9094"],
    )
    (asked,) = served.asked(wire.AddRaftVoterRequest)
    assert (asked.cluster_id, asked.voter_id, asked.voter_directory_id) == (CLUSTER_ID, 3004, directory_id(properties))
    assert [(each.name, each.host, each.port) for each in asked.listeners] == [
        ("CONTROLLER", "10.0.0.4", 9093),
        ("INTERNAL", "localhost", 9094),
    ]
    assert asked.ack_when_committed
    served.cluster.wrong[wire.AddRaftVoterResponse] = (ErrorCode.DUPLICATE_VOTER, "it is one already")
    assert served.run("add", str(properties), *where) == 1
    assert "DUPLICATE_VOTER: it is one already" in capsys.readouterr().err


def test_what_is_no_controller_is_not_added(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker, or a node whose directories are not formatted, would take a vote and never use it."""
    words = ["cluster", "quorum", "add", str(properties), "--dry-run"]
    only = ("--override", "listeners=INTERNAL://:9093")
    for override, why in (
        ("process.roles=broker", "process.roles did not contain 'controller' in configuration file"),
        ("controller.listener.names=OTHER", "Cannot find information about controller listener name: OTHER"),
        ("metadata.log.dir=/nowhere", "Unable to read meta.properties from /nowhere"),
    ):
        assert run([*words, *only, "--override", override]) == 1
        assert why in capsys.readouterr().err
    nameless = properties.with_name("nameless.properties")
    nameless.write_text(re.sub(r"(?m)^controller\.listener\.names.*\n", "", properties.read_text()))
    assert run(["cluster", "quorum", "add", str(nameless), "--override", "listeners=INTERNAL://:9093"]) == 1
    assert "controller.listener.names was not found" in capsys.readouterr().err
    meta = properties.parent / "b" / "meta.properties"
    meta.write_text("".join(line for line in meta.read_text().splitlines(True) if not line.startswith("directory.id")))
    assert run(words) == 1
    assert "No directory id found" in capsys.readouterr().err
    meta.write_text("version=7\n")
    assert run(words) == 1
    assert "version 7" in capsys.readouterr().err


def test_a_controller_is_removed(controllers: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is gone for good would count in every majority."""
    where = ("--controller", f"127.0.0.1:{controllers.controller.port}")
    words = ("remove", "-i", "3001", "-d", "0dHR0dHR0dHR0dHR0dELuQ", *where)
    assert controllers.run(*words, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["removed"] is False
    assert not controllers.asked(wire.RemoveRaftVoterRequest)
    assert controllers.run(*words) == 0
    assert "controller 3001 with directory id 0dHR0dHR0dHR0dHR0dELuQ: removed" in capsys.readouterr().out
    (asked,) = controllers.asked(wire.RemoveRaftVoterRequest)
    assert (asked.voter_id, asked.voter_directory_id) == (3001, IDS[0])
    controllers.cluster.wrong[wire.RemoveRaftVoterResponse] = (ErrorCode.VOTER_NOT_FOUND, "who?")
    assert controllers.run(*words) == 1
    assert "VOTER_NOT_FOUND: who?" in capsys.readouterr().err
    assert controllers.run("remove", "-i", "3001", "-d", "x", *where) == 2
