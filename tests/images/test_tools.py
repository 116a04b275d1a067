"""Kafka's tools by their own names in the container, and what it does at its first start.

Also of `kbroker.cli.kafka_tools`, `kbroker.cli.container`, `kbroker.cli.topics.first_topics`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kbroker.cli.kafka_tools import NOT_HERE, TOOLS
from kbroker.cli.main import run
from kbroker.cli.topics import first_topics
from kbroker.cli.topics.first_topics import make_topics
from kbroker.config.images.first_start import PlannedTopic
from tests.conftest import StartBroker
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str, *words: str) -> list[str]:
    """The command line of a tool."""
    return ["kafka-tool", name, *words]


def test_the_image_has_a_file_of_each_tool() -> None:
    """A health check or a script of a compose file would end with "not found"."""
    text = (ROOT / "docker" / "drop_in.sh").read_text().replace("\\\n", " ")
    named = re.search(r"for tool in ([^;]*);", text)
    assert named is not None and named[1].split() == [*TOOLS, *NOT_HERE]


def test_tools_do_what_compose_files_ask_of_them(
    kbroker_process: StartBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    """Containers that wait for the broker, or make its topics, would fail."""
    broker = kbroker_process()
    at = ("--bootstrap-server", broker.bootstrap)
    create = ("--create", "--if-not-exists", "--partitions", "3", "--replication-factor", "1")
    for _ in range(2):
        assert run(tool("kafka-topics.sh", *at, *create, "--topic", "orders", "--config", "retention.ms=60000")) == 0
    assert run(tool("cub", "kafka-ready", "-b", broker.bootstrap, "1", "20")) == 0
    capfd.readouterr()
    assert run(tool("kafka-topics", *at, "--list")) == 0
    assert capfd.readouterr().out.splitlines() == ["orders"]
    assert run(tool("kafka-topics", *at, "--describe", "-topic", "orders")) == 0
    assert "retention.ms=60000" in capfd.readouterr().out
    words = [sys.executable, "-m", "kbroker.cli", *tool("kafka-console-producer", "--broker-list", broker.bootstrap)]
    separated = ["--topic", "orders", "--property", "parse.key=true", "--property", "key.separator=:"]
    subprocess.run([*words, *separated], input=b"k:v\n", check=True)
    consume = ("--topic", "orders", "--from-beginning", "--max-messages", "1", "--property", "print.key=true")
    assert run(tool("kafka-console-consumer", *at, *consume, "--group", "readers")) == 0
    assert capfd.readouterr().out == "k\tv\n"
    assert run(tool("kafka-consumer-groups", *at, "--list")) == 0
    assert "readers" in capfd.readouterr().out
    assert run(tool("kafka-broker-api-versions", *at)) == 0
    assert re.search(r"\(id: 1\) -> \(\n\tPRODUCE\(0\): \d+ to \d+,", capfd.readouterr().out)
    assert run(tool("kafka-cluster", "cluster-id", *at)) == 0
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", capfd.readouterr().out)
    assert run(tool("kafka-topics", *at, "--delete", "--topic", "orders")) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (tool("kafka-topics", "--zookeeper", "zookeeper:2181", "--list"), "give --bootstrap-server"),
        (tool("kafka-configs.sh", "--alter"), "is not in this image"),
        (tool("kafka-storage", "format", "--add-scram", "x"), "kbroker format --add-scram"),
        (tool("cub", "kafka-ready", "-b", "127.0.0.1:1", "1", "1"), "not ready within 1 s"),
        (tool("cub", "zk-ready", "127.0.0.1:1/kafka", "1"), "not ready within 1 s"),
    ],
)
def test_what_is_not_there_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A script would go on as if it had been done."""
    assert run(words) != 0
    assert told in capsys.readouterr().err


def test_an_id_is_made_and_nothing_is_formatted(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that formats before the start would end the container."""
    assert run(tool("kafka-storage", "random-uuid")) == 0
    assert re.fullmatch(r"[\w-]{22}\n", capsys.readouterr().out)
    assert run(tool("kafka-storage", "format", "-t", "x", "-c", "/etc/kafka/kafka.properties")) == 0


def test_topics_are_made_when_the_broker_comes(kbroker_process: StartBroker) -> None:
    """They would be missing wherever a broker takes longer to start than the container that makes them."""
    broker = kbroker_process(wait=False)
    planned = [
        PlannedTopic("a", 2, 1, {"cleanup.policy": "compact"}),
        PlannedTopic("b", 1, 1),
        PlannedTopic("b ", 1, 1),
    ]
    reasons: dict[str, str] = {}
    maker = threading.Thread(
        target=lambda: reasons.update(make_topics(("127.0.0.1", broker.port), planned, seconds=60))
    )
    maker.start()
    broker.start()
    maker.join(60)
    assert not maker.is_alive()
    assert set(reasons) == {"b "} and reasons["b "]
    assert {name: len(topic.partitions) for name, topic in broker.admin.list_topics(timeout=20).topics.items()} == {
        "a": 2,
        "b": 1,
    }
    assert make_topics(("127.0.0.1", broker.port), planned[:2], seconds=0) == {}
    (reason,) = make_topics(("127.0.0.1", broker.port), [PlannedTopic("c", 1, 3)], seconds=0).values()
    assert "replication factor" in reason.lower()
    (reason,) = make_topics(("127.0.0.1", free_port()), [PlannedTopic("c", 1, 3)], seconds=0).values()
    assert reason


def test_words_of_the_container_are_a_command_of_kbrokers_or_a_program(capfd: pytest.CaptureFixture[str]) -> None:
    """`docker run IMAGE kbroker …`, `… topics list` or `… bash` would each need another entrypoint."""
    assert run(["container", "format", "--help"]) == 0
    assert "meta.properties" in capfd.readouterr().out
    words = [sys.executable, "-m", "kbroker.cli", "container"]
    done = subprocess.run(
        [*words, "sh", "-c", "echo $KAFKA_X"], check=True, env={**os.environ, "KAFKA_X": "y"}, capture_output=True
    )
    assert (done.returncode, done.stdout) == (0, b"y\n")
    assert run(["container", "no-such-program"]) == 1
    assert "no command of kbroker's either" in capfd.readouterr().err


def test_help_of_the_container_is_about_the_container(capfd: pytest.CaptureFixture[str]) -> None:
    """Who asks how to start the image would get the list of all commands, in which `container` is not."""
    for word in ("--help", "-h"):
        assert run(["container", word]) == 0
        said = capfd.readouterr().out
        assert "kbroker container" in said and "KAFKA_CREATE_TOPICS" in said
    assert run(["container", "topics", "--help"]) == 0
    assert "KAFKA_CREATE_TOPICS" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ({"b": "no"}, "KAFKA_CREATE_TOPICS: 1 topic is there: a\n"),
        ({}, "KAFKA_CREATE_TOPICS: 2 topics are there: a, b\n"),
    ],
)
def test_what_topics_are_there_is_a_sentence(
    reasons: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`there are one` reads as if something were wrong."""
    monkeypatch.setenv("KAFKA_CREATE_TOPICS", "a:1:1,b:1:1")
    monkeypatch.setattr(first_topics, "make_topics", lambda *_: reasons)
    assert first_topics.main() == (1 if reasons else 0)
    assert said in capfd.readouterr().err
