"""The clients under test, and what each is unable to do by its own doing."""

from __future__ import annotations

import sys

from tests.compat.client import ClientKind
from tests.compat.tooling import java_command, node_folder

CONFLUENT = ClientKind(
    "confluent", lambda bootstrap: [sys.executable, "-m", "tests.compat.drivers.confluent", bootstrap]
)
# kafka-python and kafkajs have no way to write a header whose value is null.
KAFKA_PYTHON = ClientKind(
    "kafka-python",
    lambda bootstrap: [sys.executable, "-m", "tests.compat.drivers.kafka_python", bootstrap],
    null_headers=False,
)
AIOKAFKA = ClientKind("aiokafka", lambda bootstrap: [sys.executable, "-m", "tests.compat.drivers.aio", bootstrap])
KAFKAJS = ClientKind(
    "kafkajs", lambda bootstrap: ["node", str(node_folder() / "driver.js"), bootstrap], null_headers=False
)
JAVA = ClientKind("java", lambda bootstrap: java_command("Driver", bootstrap))
