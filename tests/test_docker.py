"""What `docker/` says, proven without Docker: settings of the image and the compose files, and a cluster by them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.cli.main import run
from kbroker.config import BrokerConfig
from tests.broker_process import BrokerProcess, answers_api_versions
from tests.cluster.kraft.processes import JavaNode
from tests.compat.brokers import CLUSTER_ID
from tests.compat.waiting import wait_for
from tests.ports import free_port
from tests.security.tls.authority import Authority
from tests.zookeeper_server import zookeeper_server

ROOT = Path(__file__).resolve().parent.parent
DOCKER = ROOT / "docker"
# The other one is a benchmark, whose brokers keep nothing.
COMPOSE_FILES = [DOCKER / f"compose{name}.yaml" for name in ("", ".cluster", ".kraft", ".kafka-controller", ".schemas")]


def image_settings() -> dict[str, str]:
    """The variables that the image sets."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    return dict(re.findall(r"(KBROKER_\w+)=(\S+)", "\n".join(re.findall(r"^ENV .*", text, re.MULTILINE))))


def brokers_of(compose: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The services that run kbroker."""
    return {name: service for name, service in compose["services"].items() if "build" in service}


def environments(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Each broker's service, and all variables that its process has."""
    for service in brokers_of(yaml.safe_load(file.read_text())).values():
        yield service, {**image_settings(), **service.get("environment", {})}


@pytest.mark.parametrize("file", COMPOSE_FILES, ids=lambda file: file.name)
def test_compose_files_say_what_a_broker_takes(file: Path) -> None:
    """Whoever tries kbroker by its compose file would get a container that ends, or that no client reaches."""
    compose = yaml.safe_load(file.read_text())
    named = set(compose["volumes"])
    mounted, published, ids = [], [], []
    for service, environ in environments(file):
        assert (file.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        config = BrokerConfig.load(None, (), environ)
        assert config.warnings == []
        ids.append(config.node_id)
        (volume,) = (each.split(":") for each in service["volumes"])
        mounted.append(volume[0])
        assert Path(config.log_dirs[0]).is_relative_to(volume[1])
        listening = {str(each.port) for each in config.listeners} | {environ["KBROKER_METRICS_LISTENER"].split(":")[-1]}
        for each in service["ports"]:
            host, outside, inside = each.split(":")
            assert host == "127.0.0.1"
            assert inside in listening
            published.append(outside)
        for listener in config.advertised_listeners:
            if listener.host == "127.0.0.1":
                assert str(listener.port) in published
    assert len(set(ids)) == len(ids)
    assert len(set(published)) == len(published)
    assert len(set(mounted)) == len(mounted)
    assert set(mounted) <= named
    assert {
        each.split(":")[0] for service in compose["services"].values() for each in service.get("volumes", ())
    } == named


class ComposedBroker(BrokerProcess):
    """A broker that has nothing but its variables, as in a container."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "kbroker.cli", "container", "start"]


def test_a_broker_of_the_secured_compose_file_lets_in_who_may(tmp_path: Path) -> None:
    """Whoever puts a broker on a network by it would have one that does not start, or that serves everybody."""
    authority = Authority()
    issued, trust = authority.issue(), authority.write_pem(tmp_path / "ca.pem")
    (tmp_path / "broker.pem").write_text(issued.key_pem() + issued.chain_pem())
    (tmp_path / "plain-users").write_text('user_admin="admin-secret" user_alice="in wonderland"')
    compose = yaml.safe_load((DOCKER / "compose.secured.yaml").read_text())
    (service,) = brokers_of(compose).values()
    assert {name: each["file"] for name, each in compose["secrets"].items()} == {
        name: f"secrets/{name}" for name in service["secrets"]
    }
    port, metrics = free_port(), free_port()
    environ = {**image_settings(), **service["environment"]}
    for inside, outside in {
        "$$": "$",
        "/run/secrets": str(tmp_path),
        "://:9092": f"://127.0.0.1:{port}",
        "localhost:9092": f"localhost:{port}",
        "0.0.0.0:9644": f"127.0.0.1:{metrics}",
        "/var/lib/kbroker": str(tmp_path),
    }.items():
        environ = {name: value.replace(inside, outside) for name, value in environ.items()}
    own = {"bootstrap.servers": f"localhost:{port}", "ssl.ca.location": str(trust), "log_level": 0}
    login = {**own, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    output = tmp_path / "output"
    # Without the tree's own variables, as in a container.
    with output.open("wb") as file:
        broker = subprocess.Popen(
            [sys.executable, "-m", "kbroker.cli", "start"], env={**os.environ, **environ}, stdout=file, stderr=file
        )
    try:
        wait_for(lambda: " ready on " in output.read_text() or broker.poll() is not None, "the broker")
        admin = AdminClient({**login, "sasl.username": "admin", "sasl.password": "admin-secret"})
        admin.create_topics([NewTopic("t", 1)])["t"].result(120)
        alice = AdminClient({**login, "sasl.username": "alice", "sasl.password": "in wonderland"})
        assert "t" not in alice.list_topics(timeout=120).topics
        with pytest.raises(KafkaException):
            AdminClient({**login, "sasl.username": "alice", "sasl.password": "x"}).list_topics(timeout=2)
        assert "is not a known setting" not in output.read_text()
        assert "in wonderland" not in output.read_text()
    finally:
        broker.terminate()
        broker.wait(120)


def moved(text: str, own: int, ports: Mapping[int, Mapping[int, int]], outer: Mapping[int, int], keeper: str) -> str:
    """Names and ports as they are outside of containers; `keeper`: ZooKeeper's address, or the controller's.

    `ports`: of each inner port those of the brokers, of which `own` is one."""
    text = text.replace("zookeeper:2181", keeper).replace("controller:29093", keeper)
    for inner, of_brokers in ports.items():
        text = re.sub(rf"broker-(\d):{inner}", lambda name, to=of_brokers: f"127.0.0.1:{to[int(name[1])]}", text)
        text = text.replace(f"://:{inner}", f"://127.0.0.1:{of_brokers[own]}")
    text = text.replace("://:", "://127.0.0.1:")
    return re.sub(r":(909\d)\b", lambda port: f":{outer[int(port[1])]}", text)


@contextmanager
def controller(folder: Path) -> Iterator[str]:
    """The controller of the compose file, as a process; yields its address."""
    (service,) = (
        each
        for each in yaml.safe_load((DOCKER / "compose.kafka-controller.yaml").read_text())["services"].values()
        if "build" not in each
    )
    port = free_port()
    own = {
        key.removeprefix("KAFKA_").lower().replace("_", "."): value.replace("controller:", ":").replace(
            ":29093", f"127.0.0.1:{port}"
        )
        for key, value in service["environment"].items()
        if key.startswith("KAFKA_") and key != "KAFKA_LOG_DIRS"
    }
    node = JavaNode(3001, folder, port, own, heap="256m")
    node.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        node.kill()


@pytest.mark.compat
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["compose.cluster.yaml", "compose.kraft.yaml", "compose.kafka-controller.yaml"])
def test_the_cluster_of_the_compose_file_comes_together(tmp_path: Path, name: str) -> None:
    """Three containers would each be a cluster of its own, or send clients to addresses that they cannot reach."""
    with ExitStack() as ended:
        keeper = ""
        if name == "compose.kafka-controller.yaml":
            keeper = ended.enter_context(controller(tmp_path / "controller"))
        elif name == "compose.cluster.yaml":
            keeper = ended.enter_context(zookeeper_server(tmp_path / "zookeeper")).address
        found = list(environments(DOCKER / name))
        numbers = range(1, len(found) + 1)
        inner = {port: {number: free_port() for number in numbers} for port in (29092, 29093)}
        outer = {9091 + number: free_port() for number in numbers}
        brokers = []
        for number, (_, environ) in enumerate(found, 1):
            variables = {key: moved(value, number, inner, outer, keeper) for key, value in environ.items()}
            variables["KBROKER_LOG_DIRS"] = str(tmp_path / f"broker-{number}" / "data")
            variables["KBROKER_METRICS_LISTENER"] = f"http://127.0.0.1:{free_port()}"
            if name == "compose.kafka-controller.yaml":
                # The controller is formatted for the tests' own cluster.
                variables["CLUSTER_ID"] = CLUSTER_ID
            port = outer[9091 + number]
            broker = ComposedBroker(tmp_path / f"broker-{number}", environ=variables, port=port)
            ended.callback(lambda broker=broker: broker.running and broker.kill())
            broker.spawn()
            brokers.append(broker)
        for broker in brokers:
            wait_for(lambda broker=broker: answers_api_versions(broker.port, None), "a broker to answer", seconds=120)
        admin = AdminClient({"bootstrap.servers": brokers[0].bootstrap})

        def together() -> bool:
            known = admin.list_topics(timeout=30).brokers.values()
            return {(each.host, each.port) for each in known} == {("127.0.0.1", each.port) for each in brokers}

        wait_for(together, "all brokers to be known by their addresses on the host")
        admin.create_topics([NewTopic("t", 3)])["t"].result(60)
        topic = wait_for(lambda: admin.list_topics("t", timeout=30).topics["t"].partitions, "the topic")
        assert [len(each.replicas) for each in topic.values()] == [3] * 3
        producer = Producer({"bootstrap.servers": brokers[1].bootstrap, "acks": "all"})
        failed: list[object] = []
        for partition in range(3):
            producer.produce("t", "x", partition=partition, on_delivery=lambda error, _: error and failed.append(error))
        assert producer.flush(120) == 0
        assert failed == []


@pytest.mark.compat
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["kbroker", "kafka", "zookeeper"])
def test_make_run_cluster_is_ready_in_one_command_and_keeps_its_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """The way to try a cluster that the guide names would not work, or forget everything by the next day."""
    goal = (ROOT / "Makefile").read_text().partition("\nrun-cluster:")[2].partition("\n\n")[0]
    assert "$(BIN)/python -m tests.run_cluster $(if $(KIND),--kind $(KIND)) $(ARGS)" in goal
    first = free_port()
    ports = [first, free_port(), free_port()]
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    for attempt in range(2):
        place = [str(tmp_path / "cluster"), *map(str, ports)]
        command = [sys.executable, "-m", "tests.run_cluster", "--kind", kind, *place]
        with (tmp_path / "out").open("wb") as output:
            process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=output, stderr=subprocess.STDOUT)

        def ready(process: subprocess.Popen[bytes] = process) -> bool:
            text = (tmp_path / "out").read_text()
            assert process.poll() is None, text
            return f"brokers on {bootstrap}" in text

        try:
            wait_for(ready, "the cluster to be ready", seconds=180)
            if not attempt:
                create = ["topics", "create", "orders", "--partitions", "6", "--replication-factor", "3"]
                assert run([*create, "-b", bootstrap]) == 0
            wait_for(lambda: run(["cluster", "status", "-b", bootstrap]) == 0, "the cluster to be whole")
            capsys.readouterr()
            assert run(["topics", "list", "--json", "-b", bootstrap]) == 0
            assert "orders" in [each["name"] for each in json.loads(capsys.readouterr().out)]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
