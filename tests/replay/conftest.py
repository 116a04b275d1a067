"""One Spark session and one broker for all tests of the pipeline: starting Spark costs more than most tests."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.broker_process import BrokerProcess
from tests.replay.connector import connector_jars
from tests.tools import require_tool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
SPARK_SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "kbroker-tests",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Tests end before code is hot enough for the second compiler, which would take one of two cores.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sockets that PySpark leaves to the collector are not ours to close, and Spark may have to share the machine."""
    for item in items:
        if item.get_closest_marker("spark"):
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(600))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            # PySpark's own use of pandas.
            item.add_marker(pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What Spark's drivers leave in Java's directory for temporary files goes with the tests' own."""
    folder = tmp_path_factory.mktemp("java")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={folder}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on local[2] with the project's data sources registered, shared by all tests of the run."""
    pytest.importorskip("pyspark")
    require_tool("java")
    from pyspark.sql import SparkSession

    from kbroker.replay import register
    from kbroker.replay.spark_python import workers_python

    # Python workers import the test modules that functions come from, whatever the directory pytest was started in.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = workers_python(), sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    with contextlib.suppress(pytest.skip.Exception):
        # Without Maven only the comparisons with Spark's own connector are left out.
        builder = builder.config("spark.jars", ",".join(connector_jars()))
    warehouse = tmp_path_factory.mktemp("spark")
    builder = builder.config("spark.sql.warehouse.dir", str(warehouse / "warehouse"))
    builder = builder.config("spark.local.dir", str(warehouse / "local"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kbroker_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running kbroker for all tests of the run: use topics of your own, and do not stop it."""
    broker = BrokerProcess(tmp_path_factory.mktemp("kbroker"))
    broker.start()
    yield broker
    if broker.running:
        broker.kill()


@pytest.fixture(scope="module", params=["kbroker", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest, kbroker_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Of kbroker, then of real Kafka 4.3.1."""
    if request.param == "kbroker":
        yield kbroker_broker.bootstrap
        return
    from tests.compat.real_kafka import KafkaProcess

    kafka = KafkaProcess(tmp_path_factory.mktemp("kafka"))
    kafka.start()
    yield kafka.bootstrap
    kafka.stop()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The second cluster, for all tests of a module."""
    broker = BrokerProcess(tmp_path_factory.mktemp("target")).start()
    yield broker
    broker.kill()
