"""The same jobs with Spark's own Kafka connector and with this project's: the same rows, or refused by both.

Also of `kbroker.replay.sources.option_table`, `kbroker.replay.sources.read_table`,
`kbroker.replay.sources.write_table`, `kbroker.replay.sources.client_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
from kbroker.replay.sources.read_table import READING
from kbroker.replay.sources.write_table import WRITING
from tests.broker_process import BrokerProcess
from tests.replay.connector import connector_jars
from tests.replay.jobs import reading, streaming, writing
from tests.replay.jobs.setting import REFUSED, Job, Setting, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def topics(kbroker_broker: BrokerProcess) -> Topics:
    return Topics.made(kbroker_broker.bootstrap)


def outcome(job: Job, setting: Setting) -> object:
    setting.folder.mkdir(parents=True)
    try:
        return job(setting)
    except Exception as error:
        return f"failed: {error}"


def different(
    jobs: Mapping[str, Job], spark: SparkSession, broker: BrokerProcess, topics: Topics, folder: Path
) -> dict[str, tuple[str, str]]:
    """The outcomes of jobs that do not end the same: with Spark's connector, with this project's."""
    found = {}
    for number, (name, job) in enumerate(jobs.items()):
        theirs, ours = (
            outcome(job, Setting(spark, broker.bootstrap, kind, topics, folder / f"{number}-{kind}"))
            for kind in ("kafka", "kbroker")
        )
        ran = theirs == REFUSED if name.startswith("no ") else not str(theirs).startswith("failed")
        if theirs != ours or not ran:
            found[name] = (str(theirs)[:900], str(ours)[:900])
    return found


@pytest.mark.parametrize(
    ("what", "jobs"),
    [
        ("read", reading.JOBS),
        pytest.param("stream", streaming.JOBS, marks=pytest.mark.slow),
        ("write", writing.JOBS),
    ],
    ids=lambda x: str(x)[:6],
)
def test_a_job_gives_the_same_in_both_formats(
    spark: SparkSession, kbroker_broker: BrokerProcess, topics: Topics, tmp_path: Path, what: str,
    jobs: Mapping[str, Job], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A job that is moved would give other rows, or stop at an option that it always had."""
    connector_jars()
    odd = different(jobs, spark, kbroker_broker, topics, tmp_path)
    with capsys.disabled():
        print(f"\n{what}: {len(jobs) - len(odd)} of {len(jobs)} jobs are the same in both formats")
    assert not odd, "\n".join(f"{name}:\n  kafka   {one}\n  kbroker {two}" for name, (one, two) in odd.items())


def test_what_spark_gives_its_own_connector_alone(
    spark: SparkSession, kbroker_broker: BrokerProcess, topics: Topics, tmp_path: Path
) -> None:
    """The documentation would send users round what works, or into what does not."""
    connector_jars()
    for number, (name, job) in enumerate(writing.ONLY_SPARKS.items()):
        theirs, ours = (
            outcome(job, Setting(spark, kbroker_broker.bootstrap, kind, topics, tmp_path / f"{number}-{kind}"))
            for kind in ("kafka", "kbroker")
        )
        assert not str(theirs).startswith("failed"), name
        assert str(ours).startswith("failed"), f"{name} works now: move it to JOBS and say so in docs/spark.md"


def test_every_setting_of_kafka_s_clients_is_known(spark: SparkSession) -> None:
    """A job that sets one would stop with a name that is not known, though Kafka's clients have it."""
    connector_jars()
    java: Any = spark._jvm
    gateway: Any = spark._sc._gateway
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    no_types, no_arguments = gateway.new_array(java.Class, 0), gateway.new_array(java.Object, 0)
    for table, kind in ((READING, "consumer.ConsumerConfig"), (WRITING, "producer.ProducerConfig")):
        method = loader.loadClass(f"org.apache.kafka.clients.{kind}").getMethod("configNames", no_types)
        found = set(method.invoke(None, no_arguments))
        known = {name.removeprefix("kafka.") for name in table.by_name}
        unknown = {name for name in found if not name.startswith(("ssl.", "sasl.", "security."))} - known
        assert len(found) > 50
        assert not unknown
