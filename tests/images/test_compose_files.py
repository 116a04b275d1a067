"""Public compose files of Kafka's images come up with kbroker's image in their place.

Each runs without an engine: the steps of docker/Dockerfile in a root directory of its own, then its entrypoint with the
file's variables, volumes, names and health check, in a network of its own, so that ports are the file's, too
(`tests.images.bare_root`).  Root only.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.images.bare_root import ROOT, Plan, isolated
from tests.security.tls.authority import Authority
from tests.tools import missing, require_tool

FILES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "compose_files.yaml").read_text())
REFUSED: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "refused_files.yaml").read_text())


QUICK = (
    "apache/kafka docker/examples/docker-compose-files/single-node/plaintext/docker-compose.yml",
    "confluentinc/cp-all-in-one cp-all-in-one-kraft/docker-compose.yml",
    "bitnami/containers bitnami/kafka/3.7/debian-12/docker-compose.yml",
    "wurstmeister/kafka-docker docker-compose-single-broker.yml",
)
"""One of each image; the others take minutes together."""


def name_of(said: dict[str, Any]) -> str:
    """A test's."""
    return str(said["origin"]).replace("/", "-").replace(" ", "_")


def marks_of(said: dict[str, Any]) -> Sequence[pytest.MarkDecorator]:
    """When a file is played."""
    return () if said["origin"] in QUICK else (pytest.mark.slow,)


class Secrets:
    """Keys, certificates and stores of one test."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.authority = Authority()
        self.issued = self.authority.issue(hosts=["localhost", "127.0.0.1", *names])
        self.ca = self.authority.write_pem(folder / "ca.pem")
        self.client = self.issued.write_pem(folder / "client.pem")

    def content(self, made: Mapping[str, str]) -> bytes:
        """The bytes of a file on the host."""
        path = self.folder / "store"
        if "keystore" in made and made.get("kind") == "pkcs12":
            return self.issued.write_pkcs12(path, made["keystore"]).read_bytes()
        if "keystore" in made:
            return self.issued.write_jks(path, made["keystore"], made["keystore"]).read_bytes()
        if "truststore" in made:
            return self.authority.write_jks(path, made["truststore"]).read_bytes()
        return made["text"].encode()

    def client_settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """A client's settings with its files."""
        places = {"{ca}": str(self.ca), "{client}": str(self.client)}
        return {key: places.get(value, value) for key, value in given.items()}


def health(test: list[str] | None) -> list[str]:
    """The words of a compose file's health check."""
    if not test:
        return []
    return ["sh", "-c", test[1]] if test[0] == "CMD-SHELL" else test[1:]


def plan(said: Mapping[str, Any], folder: Path) -> Plan:
    """What is to be played for a service of a compose file."""
    secrets = Secrets(folder, [said["service"]])
    volumes = [tuple(each.split(":")[:2]) for each in said.get("volumes", [])]
    clients, strangers = (
        {name: secrets.client_settings(each) for name, each in said.get(kind, {}).items()}
        for kind in ("clients", "strangers")
    )
    return Plan(
        str(folder),
        said["service"],
        {name: str(value) for name, value in said["environment"].items()},
        entrypoint=said.get("entrypoint", []),
        command=said.get("command", []),
        health=health(said.get("health")),
        user=said.get("user", ""),
        volumes=[(source, place) for source, place in volumes],
        files={name: base64.b64encode(secrets.content(each)).decode() for name, each in said.get("files", {}).items()},
        hosts=[*said.get("hosts", []), *([said["zookeeper"]] if "zookeeper" in said else [])],
        zookeeper="zookeeper" in said,
        clients=clients,
        strangers=strangers,
        tried=said.get("tried", []),
        groups=said.get("groups", True),
        topics=said.get("topics", {}),
        afterwards=said.get("afterwards", []),
        ends=said.get("ends", False),
    )


def need_a_root() -> None:
    """Skip where there cannot be a root directory and a network of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for a root directory and a network of its own")
    for tool in ("unshare", "chroot", "mount", "ip"):
        if shutil.which(tool) is None:
            missing(tool, "util-linux, coreutils and iproute2 have what stands for an engine")
    tried = ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if subprocess.run(tried, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount, and to have a network of its own")


def played(said: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What came of it."""
    if "zookeeper" in said:
        require_tool("java")
    return in_a_root("tests.images.bare_root", given=json.dumps(asdict(plan(said, folder))))


def in_a_root(*words: str, given: str = "") -> dict[str, Any]:
    """What a module prints at its end, in namespaces of its own."""
    need_a_root()
    done = subprocess.run(
        isolated(sys.executable, "-m", *words),
        input=given,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_there_are_twenty_public_files_of_every_image() -> None:
    """The tests below would say little about the files that people have."""
    assert len({each["origin"] for each in FILES}) == len(FILES) >= 20
    assert all("/" in each["origin"].split()[0] for each in FILES)
    variables = {name for each in FILES for name in each["environment"]}
    assert {"CLUSTER_ID", "KAFKA_CFG_LISTENERS", "KAFKA_ADVERTISED_HOST_NAME", "KAFKA_CREATE_TOPICS"} <= variables
    assert sum("strangers" in each for each in FILES) >= 5
    for each in FILES:
        ports = {port.partition(":")[2] for port in each.get("ports", [])}
        assert ports or "." not in each["service"]


@pytest.mark.timeout(400)
@pytest.mark.compat
@pytest.mark.parametrize("said", [pytest.param(each, marks=marks_of(each)) for each in FILES], ids=name_of)
def test_the_compose_file_comes_up(said: dict[str, Any], tmp_path: Path) -> None:
    """Whoever changes the image's name would have a container that ends, is never healthy, or that nobody reaches."""
    report = played(said, tmp_path)
    listeners = set(report["values"])
    assert listeners and set(said.get("clients", {})) <= listeners
    assert all(len(values) == 1 for values in report["values"].values())
    assert len(report["again"]) == 2
    assert report["data"], report["log.dirs"]
    assert report["device"] or not said.get("on_volume")
    for status, output in report["afterwards"]:
        assert status == 0, output


@pytest.mark.timeout(120)
@pytest.mark.parametrize("said", REFUSED, ids=lambda said: said["origin"].partition(" ")[2].replace("/", "-"))
def test_a_service_that_kbroker_cannot_be_ends_with_the_reason(said: dict[str, Any], tmp_path: Path) -> None:
    """It would be a cluster of its own, or serve without the protection that the file asks for."""
    report = played({**said, "ends": True}, tmp_path)
    assert report["status"] == 1
    assert re.search(said["says"], report["output"]), report["output"]


def shown(folder: Path, policy: str) -> dict[str, Any]:
    """What viewers of a published metrics listener are shown of a topic's records."""
    return in_a_root("tests.images.published_port", str(folder), policy)


def test_a_listener_that_is_published_to_loopback_shows_messages_to_its_own_machine_alone(tmp_path: Path) -> None:
    """In a container the console would have no messages, or other containers would read them."""
    said = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]["kbroker"]
    assert "127.0.0.1:9644:9644" in said["ports"]
    report = shown(tmp_path, said["environment"]["KBROKER_CONSOLE_MESSAGES"])
    status, page = report["host"]
    assert status == 200 and "by 172.28.0.2:9092" in json.dumps(page), report
    for viewer in ("other container", "host by another name"):
        status, page = report[viewer]
        assert status == 403 and "Records are not shown to" in page["error"], report


def test_a_container_shows_no_messages_unless_it_is_told_to(tmp_path: Path) -> None:
    """A published port would show every topic's records to a network that its owner did not think of."""
    assert {viewer: status for viewer, (status, _) in shown(tmp_path, "").items()} == {
        "host": 403,
        "host by another name": 403,
        "other container": 403,
    }


BITNAMI_WITH_USERS: dict[str, Any] = {
    "service": "kafka",
    "volumes": ["kafka_data:/bitnami/kafka"],
    "environment": {
        "KAFKA_CFG_NODE_ID": 1,
        "KAFKA_KRAFT_CLUSTER_ID": "abcdefghijklmnopqrstuv==",
        "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
        "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_CFG_LISTENERS": "CONTROLLER://:9093,INTERNAL://:9092",
        "KAFKA_CFG_ADVERTISED_LISTENERS": "INTERNAL://localhost:9092",
        "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_CFG_INTER_BROKER_LISTENER_NAME": "INTERNAL",
        "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CFG_SUPER_USERS": "User:admin",
        "KAFKA_CLIENT_USERS": "admin",
        "KAFKA_CLIENT_PASSWORDS": "of-admin",
        "KAFKA_CFG_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
    },
    "on_volume": True,
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_bitnamis_users_log_in_from_the_first_start_on(tmp_path: Path, mechanism: str) -> None:
    """The users of a compose file would be locked out, or a second start would end as they are there."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": "admin"}
    said = {
        **BITNAMI_WITH_USERS,
        "clients": {"INTERNAL": {**login, "sasl.password": "of-admin"}},
        "strangers": {"INTERNAL": {**login, "sasl.password": "bitnami"}},
    }
    report = played(said, tmp_path)
    assert [len(values) for values in report["values"].values()] == [1] and len(report["again"]) == 2
    assert report["log.dirs"] == "/bitnami/kafka/data" and report["device"]
    assert "of-admin" not in report["output"]


WITH_A_MODULE_OVER_LINES: dict[str, Any] = {
    "service": "broker",
    "volumes": ["kafka_data:/var/lib/kafka/data"],
    "environment": {
        "KAFKA_NODE_ID": 1,
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
        "KAFKA_LISTENERS": "CONTROLLER://:29093,CLIENTS://:9092",
        "KAFKA_ADVERTISED_LISTENERS": "CLIENTS://localhost:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "CLIENTS",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
        "KAFKA_LISTENER_NAME_CLIENTS_PLAIN_SASL_JAAS_CONFIG": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
            '  username="admin" \\\n  password="of-admin" \\\n  user_admin="of-admin" \\\n  user_alice="of-alice" ;\n'
        ),
        "KAFKA_LISTENER_NAME_CLIENTS_PLAIN_SASL_SERVER_CALLBACK_HANDLER_CLASS": (
            "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler"
        ),
    },
    "on_volume": True,
}


@pytest.mark.timeout(400)
def test_users_of_a_login_module_over_several_lines_log_in(tmp_path: Path) -> None:
    """The container would end with an error about a module that the image's Kafka reads."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    said = {
        **WITH_A_MODULE_OVER_LINES,
        "clients": {"CLIENTS": {**login, "sasl.password": "of-alice"}},
        "strangers": {"CLIENTS": {**login, "sasl.password": "of-admin"}},
    }
    report = played(said, tmp_path)
    assert [len(values) for values in report["values"].values()] == [1] and len(report["again"]) == 2
    assert "of-alice" not in report["output"]


def test_a_container_that_runs_as_another_user_writes_to_its_volume(tmp_path: Path) -> None:
    """`user:` of a compose file, as people have it for mounted directories, would end the container."""
    said = next(each for each in FILES if each["origin"].startswith("jaegertracing/jaeger docker-compose/kafka/v3"))
    report = played({**said, "user": "1000:1000"}, tmp_path)
    assert report["device"] and len(report["again"]) == 2
