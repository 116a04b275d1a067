"""Kafka's tools."""

from __future__ import annotations

import subprocess
from typing import Protocol

from tests.compat.tooling import run_java

TOOLS = "org.apache.kafka.tools"


class Reached(Protocol):
    """Whom a tool asks."""

    @property
    def bootstrap(self) -> str:
        """Host and port."""


def tool(broker: Reached, java_class: str, *args: str, stdin: bytes = b"") -> str:
    """Run a tool that must succeed; what it printed."""
    done = run_java(java_class, "--bootstrap-server", broker.bootstrap, *args, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(broker: Reached, java_class: str, *args: str) -> str:
    """Run a tool that must fail; what it said."""
    done: subprocess.CompletedProcess[str] = run_java(java_class, "--bootstrap-server", broker.bootstrap, *args)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr
