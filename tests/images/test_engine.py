"""docker/'s image and compose files by an engine: built, started, asked from the host and from other containers.

`make test-image`; CONTAINER_ENGINE names a folder that keeps the images for another time (some minutes less).  Ports
are those of the files, in a network of the test's own.

Also of `tests.images.engine`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compat.waiting import wait_for
from tests.images.engine import ROOT, Engine, need_an_engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]
HOST = "127.0.0.1:9092"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """It has the image `kbroker`, made of docker/Dockerfile as it is."""
    need_an_engine()
    kept = os.environ.get("CONTAINER_ENGINE")
    engine = Engine(Path(kept) if kept else tmp_path_factory.mktemp("engine"))
    try:
        engine.need_python()
        engine.build("kbroker", "-f", "docker/Dockerfile", ".")
        yield engine
    finally:
        engine.close(keeps_images=kept is not None)


@contextmanager
def composed(engine: Engine, file: str, *built: str) -> Iterator[str]:
    """A compose file that is up; yields its project.  `built`: services without an image's name of their own."""
    project = file.replace(".", "")
    for service in built:
        engine.podman("tag", "localhost/kbroker:latest", f"localhost/{project}_{service}:latest")
    try:
        engine.compose(project, file, "up", "-d", "--no-build")
        yield project
    finally:
        engine.compose(project, file, "down", "-v", check=False)
        engine.podman("rm", "--all", "--force", "--time", "1", check=False)


def is_there(engine: Engine, *words: str) -> bool:
    """Whether a command of kbroker's succeeds."""
    command = [*engine.inside, "timeout", "20", sys.executable, "-m", "kbroker.cli", *words]
    return subprocess.run(command, env=engine.environ, cwd=ROOT, capture_output=True, check=False).returncode == 0


def wait_until_ready(engine: Engine, *names: str) -> None:
    """Until the health checks of containers pass, as the engine runs them."""
    for name in names:

        def healthy(name: str = name) -> bool:
            assert engine.podman("inspect", name, "--format", "{{.State.Status}}").strip() != "created", name
            done = [*engine.inside, "podman", "healthcheck", "run", name]
            return subprocess.run(done, env=engine.environ, capture_output=True, check=False).returncode == 0

        try:
            wait_for(healthy, f"{name} to be healthy", seconds=180, every=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{engine.podman('logs', name, check=False)[-4000:]}") from None


def test_the_image_keeps_records_in_its_volume(engine: Engine) -> None:
    """Who runs the image would reach no broker, or lose all records with the container."""
    words = ["-d", "--name", "one", "-p", "127.0.0.1:9092:9092", "-v", "records:/var/lib/kbroker"]
    words += ["-e", f"KBROKER_ADVERTISED_LISTENERS=PLAINTEXT://{HOST}", "kbroker"]
    engine.podman("run", *words)
    wait_until_ready(engine, "one")
    engine.kbroker("produce", "orders", "-b", HOST, stdin="first\n")
    engine.podman("restart", "one")
    wait_until_ready(engine, "one")
    engine.kbroker("produce", "orders", "-b", HOST, stdin="second\n")
    assert "orders" in engine.podman("exec", "one", "kafka-topics.sh", "--list", "--bootstrap-server", HOST)
    assert engine.podman("exec", "one", "id", "-un").strip() == "kbroker"
    engine.podman("stop", "one")
    (state,) = json.loads(engine.podman("inspect", "one"))
    assert state["State"]["ExitCode"] == 0
    engine.podman("rm", "one")
    engine.podman("run", *words)
    wait_until_ready(engine, "one")
    said = engine.kbroker("consume", "orders", "-b", HOST, "--from-beginning", "--exit-at-end")
    assert said.splitlines() == ["first", "second"]
    engine.podman("rm", "--force", "--volumes", "one")


def test_one_broker_of_the_compose_file_serves_host_and_containers(engine: Engine) -> None:
    """`docker compose up` would give a broker that only one of both sides reaches, or that forgets."""
    with composed(engine, "compose.yaml", "kbroker") as project:
        wait_until_ready(engine, f"{project}_kbroker_1")
        engine.kbroker("produce", "orders", "-b", HOST, stdin="of the host\n")
        network = f"{project}_default"
        other = ["run", "--rm", "--network", network, "kbroker", "consume", "orders", "-b", "kbroker:19092"]
        assert "of the host" in engine.podman(*other, "--from-beginning", "--exit-at-end")
        page = ["curl", "-fsS", "http://localhost:9644/console/api/messages?topic=orders&from=oldest"]
        assert "of the host" in engine.run(*engine.inside, *page)
        # Its volume stays without `-v`.
        engine.compose(project, "compose.yaml", "down")
        engine.compose(project, "compose.yaml", "up", "-d", "--no-build")
        wait_until_ready(engine, f"{project}_kbroker_1")
        said = engine.kbroker("consume", "orders", "-b", HOST, "--from-beginning", "--exit-at-end")
        assert said.splitlines() == ["of the host"]


def three_brokers_serve(engine: Engine, project: str) -> None:
    """Records through all three, while one is killed and comes again."""
    brokers = [f"{project}_broker-{number}_1" for number in (1, 2, 3)]
    wait_until_ready(engine, *brokers)
    wait_for(
        lambda: is_there(engine, "topics", "create", "orders", "-p", "3", "-b", HOST),
        "a topic of three partitions",
        seconds=180,
    )
    engine.kbroker("produce", "orders", "-b", HOST, stdin="to all three\n")
    described = engine.kbroker("topics", "describe", "orders", "-b", "127.0.0.1:9093")
    assert all(str(number) in described for number in (1, 2, 3))
    engine.podman("kill", brokers[1])
    wait_for(
        lambda: is_there(engine, "topics", "create", "while-away", "-b", HOST),
        "a topic without one of three",
        seconds=120,
    )
    engine.kbroker("produce", "orders", "-b", HOST, stdin="to two\n")
    engine.podman("start", brokers[1])
    wait_until_ready(engine, brokers[1])
    said = engine.kbroker("consume", "orders", "-b", "127.0.0.1:9093", "--from-beginning", "--exit-at-end")
    assert sorted(said.splitlines()) == ["to all three", "to two"]
    inner = ["exec", brokers[2], "kbroker", "consume", "orders", "-b", "broker-1:29092"]
    assert "to two" in engine.podman(*inner, "--from-beginning", "--exit-at-end")


def test_three_brokers_that_are_controllers_come_up(engine: Engine) -> None:
    """The compose file of a KRaft cluster would leave three containers that wait for ever."""
    with composed(engine, "compose.kraft.yaml") as project:
        three_brokers_serve(engine, project)


def test_three_brokers_come_up_beside_a_controller_of_kafkas(engine: Engine) -> None:
    """The same beside Kafka's own image."""
    engine.need_kafka("4.3.1")
    with composed(engine, "compose.kafka-controller.yaml") as project:
        three_brokers_serve(engine, project)


def test_three_brokers_come_up_beside_zookeeper(engine: Engine) -> None:
    """The same of a cluster with ZooKeeper."""
    engine.need_zookeeper("3.9")
    with composed(engine, "compose.cluster.yaml") as project:
        three_brokers_serve(engine, project)
