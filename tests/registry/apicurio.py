"""Apicurio Registry as a process, with its schemas in a broker's topic."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.compat.tooling import schema_registry_jar
from tests.compat.waiting import wait_for
from tests.ports import free_port

PATIENCE_SECONDS = 240


@contextmanager
def apicurio(bootstrap: str, folder: Path, port: int = 0) -> Iterator[str]:
    """The URL of its API that is Confluent's."""
    jar, port = schema_registry_jar(), port or free_port()
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.otel.enabled": "false",
        "apicurio.storage.kind": "kafkasql",
        "apicurio.kafkasql.bootstrap.servers": bootstrap,
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    log = folder / "apicurio.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", *options, "-jar", str(jar)],
            stdout=out,
            stderr=out,
            cwd=folder,
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            return _answers(f"{url}/subjects")

        wait_for(answers, "the registry to answer", seconds=PATIENCE_SECONDS, every=0.1)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False
