"""Clients of before 0.11 and what they send."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable

from confluent_kafka import Producer

from tests.compat.tooling import HERE, old_client_jars, old_confluent, old_kafka_python

COUNT = 60
Command = Callable[..., list[str]]
Rows = set[tuple[str, str]]


def java(version: str, project: str = "clients", source: str = "OldClient") -> Command:
    def command(*args: str) -> list[str]:
        jars = old_client_jars(version, project)
        options = ["-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        return ["java", *options, "-cp", f"{jars}/*", str(HERE / "java" / "old" / f"{source}.java"), *args]

    return command


def kafka_python(*api_version: str) -> Command:
    def command(*args: str) -> list[str]:
        driver = str(HERE / "drivers" / "old_kafka_python.py")
        return [str(old_kafka_python()), driver, *args, *api_version]

    return command


def confluent(version: str, python: str = sys.executable) -> Command:
    def command(*args: str) -> list[str]:
        return [str(old_confluent(version, python)), str(HERE / "drivers" / "old_confluent.py"), *args]

    return command


def python_of_2018() -> str | None:
    """Of confluent-kafka 1.0 there are packages for Python 3.7 at most; 2.0.2 is the oldest with one for 3.11."""
    found = shutil.which("python3.7")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
        return None
    return found


PYTHON_OF_2018 = python_of_2018()
SIMPLE = java("0.8.2.2", "simple", "SimpleClient")
CLIENTS: dict[str, tuple[Command, tuple[str, ...]]] = {
    "java-0.10.2": (java("0.10.2.2"), ("none", "gzip", "snappy", "lz4")),
    "java-1.1": (java("1.1.1"), ("gzip", "lz4")),
    "java-2.8": (java("2.8.2"), ("snappy", "zstd")),
    "java-3.9": (java("3.9.1"), ("gzip", "zstd")),
    "kafka-python-1.4": (kafka_python(), ("none", "gzip")),
    "kafka-python-1.4-as-0.9": (kafka_python("0.9"), ("none", "gzip")),
    "kafka-python-1.4-as-0.10": (kafka_python("0.10"), ("gzip",)),
    "confluent-2.0": (confluent("2.0.2"), ("none", "gzip", "snappy", "lz4", "zstd")),
    **(
        {"confluent-1.0": (confluent("1.0.0", PYTHON_OF_2018), ("none", "gzip", "snappy", "lz4"))}
        if PYTHON_OF_2018
        else {}
    ),
}
OLD_LIBRDKAFKA = {"api.version.request": False, "broker.version.fallback": "0.9.0"}


def run(command: list[str]) -> list[list[str]]:
    """The words of each line that it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[-1] == ["done"], done.stdout[-1500:]
    return lines


def records_of(lines: list[list[str]]) -> Rows:
    return {(line[3], line[4]) for line in lines if line[0] == "record"}


def expected(*codecs: str) -> Rows:
    return {(f"key-{i}", f"{codec}-value-{i}") for codec in codecs for i in range(COUNT)}


def write_by_librdkafka(bootstrap: str, topic: str, codec: str, **values: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, **values})
    failed: list[object] = []
    for i in range(COUNT):
        producer.produce(
            topic, f"{codec}-value-{i}", f"key-{i}", on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(90) == 0
    assert failed == []
