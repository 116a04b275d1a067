"""An S3 on loopback, moto's server from a virtual environment of its own, and S3A for Spark: fetched on first use."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.compat.waiting import wait_for
from tests.ports import free_port
from tests.replay.fetched import TOOLS, fetched, fetched_jars

POM = Path(__file__).with_name("pom.xml")
BUCKET = "lake"
_MOTO = "moto-5.2.1"


def s3a_jars() -> list[str]:
    """The paths of the jars, for `spark.jars`."""
    return fetched_jars("s3a-3.5.0", "S3A", POM)


def settings_of(port: int, folder: Path) -> dict[str, str]:
    """Spark's, for that server; what is on its way there is in `folder`."""
    prefix = "spark.hadoop.fs.s3a"
    return {
        "spark.hadoop.hadoop.tmp.dir": str(folder / "hadoop"),
        f"{prefix}.endpoint": f"http://127.0.0.1:{port}",
        f"{prefix}.endpoint.region": "us-east-1",
        f"{prefix}.access.key": "testing",
        f"{prefix}.secret.key": "testing",
        f"{prefix}.path.style.access": "true",
        f"{prefix}.connection.ssl.enabled": "false",
    }


@contextmanager
def s3(folder: Path) -> Iterator[int]:
    """The port; skips (in CI: fails) the test where the package cannot be had.  There is a bucket, BUCKET."""
    home = TOOLS / _MOTO
    install = f"{sys.executable} -m venv {home} && {home}/bin/pip install --quiet 'moto[server]==5.2.1'"
    fetched(_MOTO, "moto's server", ["sh", "-c", install])
    port = free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with (folder / "moto").open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin/moto_server"), "-H", "127.0.0.1", "-p", str(port)],
            stdout=output,
            stderr=output,
            env=environ,
        )
    try:
        wait_for(lambda: _makes_bucket(port) or process.poll() is not None, "S3", seconds=240)
        assert process.poll() is None, (folder / "moto").read_text()
        yield port
    finally:
        process.kill()
        process.wait(30)


def _makes_bucket(port: int) -> bool:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
