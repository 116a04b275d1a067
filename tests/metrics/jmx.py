"""What Apache Kafka's beans say, under the names that JMX exporter has for them without rules."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.compat.tooling import run_java
from tests.metrics.kafka_series import scraped

Key = tuple[str, frozenset[tuple[str, str]]]
Values = Mapping[Key, float]
#: A bean's name as JMX writes it, then the attribute and the value.
_SAID = re.compile(r"^(kafka[.\w]*):type=([^,:]+)((?:,[\w-]+=(?:\"[^\"]*\"|[^,:]*))*):([\w -]+)\t(.*)$")
_PROPERTY = re.compile(r",([\w-]+)=(\"[^\"]*\"|[^,:]*)")


def opened(command: list[str], port: int) -> list[str]:
    """A command of Java whose beans can be read on a port of loopback."""
    java, *rest = command
    jmx = "-Dcom.sun.management.jmxremote"
    return [
        java,
        f"{jmx}.port={port}",
        f"{jmx}.rmi.port={port}",
        f"{jmx}.authenticate=false",
        f"{jmx}.ssl=false",
        f"{jmx}.host=127.0.0.1",
        "-Djava.rmi.server.hostname=127.0.0.1",
        *rest,
    ]


def beans(port: int) -> Values:
    """What all beans say now."""
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    options = ("--jmx-url", url, "--one-time", "--report-format", "tsv", "--object-name", "kafka.*:*")
    done = run_java("org.apache.kafka.tools.JmxTool", *options)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        match = _SAID.match(line)
        if match is not None and re.fullmatch(r"-?\d+(\.\d+)?(E-?\d+)?", match[5]):
            labels = frozenset((key, text.strip('"')) for key, text in _PROPERTY.findall(match[3]))
            found[fit(f"{match[1]}_{match[2]}_{match[4]}"), labels] = float(match[5])
    return found


def fit(name: str) -> str:
    """As JMX exporter writes it."""
    return re.sub("[^a-zA-Z0-9:]+", "_", name)


def shown(metrics_port: int) -> Values:
    """What kbroker shows under the same names."""
    samples = scraped(f"http://127.0.0.1:{metrics_port}", "/metrics/kafka/raw")
    return {(name, frozenset(labels.items())): value for name, rows in samples.items() for labels, value in rows}
