"""What is found wrong before Spark starts, and what it prints when it does.

Also of `kbroker.cli.spark.before_spark`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker.cli.main import run
from kbroker.replay.java import JavaError, check_java
from kbroker.replay.player.plan import places_of, spread_out
from kbroker.replay.spark_log import SparkLog
from tests.broker.client import Client
from tests.broker_process import BrokerProcess
from tests.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def java(home: Path, text: str, status: int = 0) -> dict[str, str]:
    """An environment whose Java says that."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(home)}


def test_a_java_that_spark_cannot_use_is_named(tmp_path: Path) -> None:
    """The reader would get `JAVA_GATEWAY_EXITED`, or `UnsupportedClassVersionError`, after half a minute."""
    check_java(java(tmp_path, 'openjdk version "17.0.9" 2023-10-17'))
    check_java(java(tmp_path, 'openjdk version "21" 2023-09-19'))
    check_java(java(tmp_path, "some other runtime"))
    with pytest.raises(JavaError, match=r"Java 17 or newer, and .*/bin/java is version 11"):
        check_java(java(tmp_path, 'openjdk version "11.0.2" 2019-01-15'))
    with pytest.raises(JavaError, match="does not run: broken"):
        check_java(java(tmp_path, "broken", 1))
    with pytest.raises(JavaError, match="JAVA_HOME is /nowhere"):
        check_java({"JAVA_HOME": "/nowhere"})
    with pytest.raises(JavaError, match="no `java` is in the PATH"):
        check_java({"PATH": str(tmp_path)})


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting Spark fails the test."""

    @contextmanager
    def started(*_: object) -> Iterator[Any]:
        pytest.fail("Spark was started")
        yield

    monkeypatch.setattr("kbroker.replay.session.spark_session", started)


@pytest.mark.usefixtures("no_spark")
def test_wrong_places_end_a_command_before_spark_starts(
    module_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a minute would go by before the user learns of a typo."""
    with Client(module_broker.port) as client:
        client.create("orders")
    trace = tmp_path / "access.log"
    trace.write_text('1.1.1.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2\n')
    there, free = str(tmp_path), str(tmp_path / "new")
    broker, gone = module_broker.bootstrap, f"127.0.0.1:{free_port()}"
    access = (str(trace), "--format", "access")
    for arguments, said in (
        (("replay", *access, "-b", broker, "-o", there), "is there already"),
        (("replay", *access, "-b", broker, "-o", f"{there}/no/such"), "there is no directory"),
        (("replay", *access, "-b", gone, "-o", free), "Connection refused"),
        (("replay", *access, "-b", module_broker.metrics_url.removeprefix("http://"), "-o", free), "speaks HTTP"),
        (("trace", "convert", *access, "-o", there), "is there already"),
        (("trace", "inspect", *access, "--malformed", there), "is there already"),
        (
            ("trace", "inspect", "oders", "--format", "kafka", "--option", f"kafka.bootstrap.servers={broker}"),
            "orders?",
        ),
        (("load", "to-parquet", "orders", "-b", gone, "-o", free), "Connection refused"),
        (("load", "to-parquet", "oders", "-b", broker, "-o", free), "did you mean orders?"),
        (("load", "to-topic", there, "-b", gone, "--state", free), "Connection refused"),
        (("mirror", "oders", "--from", broker, "--to", broker, "--state", free), "did you mean orders?"),
        (("mirror", "orders", "--from", broker, "--to", gone, "--state", free), "Connection refused"),
    ):
        assert run(list(arguments)) == 1, arguments
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1, (arguments, captured.err)


def test_what_the_jvm_says_goes_to_a_file_that_stays_where_it_has_errors(capfd: pytest.CaptureFixture[str]) -> None:
    """A dozen lines about log4j and host names would stand before each result, or the reason of a failure be lost."""
    log = SparkLog()
    with log.started_here():
        subprocess.run("echo WARNING: incubator >&2", shell=True, check=True)
    subprocess.run("echo after >&2", shell=True, check=True)
    assert capfd.readouterr().err == "after\n"
    assert log.path.read_text() == "WARNING: incubator\n"
    assert log.note() == "" and not log.path.exists()
    log = SparkLog()
    log.path.write_text("26/11/25 ERROR TaskSetManager: Task 0 failed\n")
    assert str(log.path) in log.note() and log.path.exists()
    log.discard()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(max_size=3), st.integers(1, 1000), max_size=40), st.integers(1, 8))
def test_sources_are_shared_out_by_their_rows(counts: dict[str, int], executors: int) -> None:
    """One executor would have half of the trace to send, and be late, while others wait."""
    places = places_of(counts, executors)
    assert set(places) == set(counts) and set(places.values()) <= set(range(executors))
    loads = [sum(count for source, count in counts.items() if places[source] == place) for place in range(executors)]
    assert max(loads) - min(loads) <= max(counts.values(), default=0)


def test_each_executor_gets_its_sources_and_as_many_rows_as_the_others(spark: SparkSession) -> None:
    """The hashes of twelve names would put seven of them into one executor and none into another."""
    rows = [(f"client-{number % 12}", number) for number in range(1200)]
    spread, _ = spread_out(spark.createDataFrame(rows, "source string, sequence long"), 4)
    parts = spread.rdd.glom().map(lambda part: [row["source"] for row in part]).collect()
    assert sorted(map(len, parts)) == [300, 300, 300, 300]
    assert sum(len(set(part)) for part in parts) == 12
