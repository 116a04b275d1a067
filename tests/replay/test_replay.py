"""Replays as their users meet them: sent at their times, proved by reading back, shown; and what goes wrong.

Also of `kbroker.cli.spark.replay`, `kbroker.replay.player.sampling`, `kbroker.replay.player.topics`,
`kbroker.replay.registration`, `kbroker._fast.replay.delivery_client`.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kbroker.cli.main import run as kbroker
from kbroker.replay.player.plan import ID_HEADER
from kbroker.replay.player.run import COMPLETE, STOPPED, Request, run_replay
from kbroker.replay.player.settings import Delivery, ReplayError
from kbroker.replay.report.numbers import read_numbers
from kbroker.replay.report.page import write_comparison, write_report
from kbroker.replay.trace_schema import TRACE_SCHEMA
from kbroker.replay.verify import verify_run
from kbroker.replay.verify_result import judge
from tests.broker_process import BrokerProcess
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def trace_of(spark: SparkSession, count: int, seconds: float, topic: str, group: str | None = None) -> DataFrame:
    """Records of six sources, evenly in time: with and without keys, headers and values; every ninth row consumes and
    every tenth after that commits, if a group is named."""
    rows = []
    for number in range(count):
        kind = "produce"
        if group is not None and number > count // 2:
            kind = {0: "consume", 1: "commit"}.get(number % 9, kind)
        produced = kind == "produce"
        value = f"value {number}".encode() * (1 + number % 3) if produced and number % 11 else None
        rows.append(
            (
                int(number * seconds * 1e6 / count),
                f"source/{number % 6}",
                number,
                topic,
                None,
                f"key {number % 40}".encode() if produced and number % 5 else None,
                value,
                len(value) if value is not None else None,
                [("h", b"1"), ("h", None)] if produced and number % 4 == 0 else [],
                kind,
                None if produced else group,
            )
        )
    return spark.createDataFrame(rows, TRACE_SCHEMA)


def replay(spark: SparkSession, trace: DataFrame, bootstrap: str, output: Path, **more: Any) -> dict[str, Any]:
    progress = more.pop("progress", None)
    request = Request(bootstrap, str(output), more.pop("delivery", Delivery()), create_partitions=3, **more)
    return run_replay(spark, trace, request, progress)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    own = BrokerProcess(tmp_path / "broker")
    own.start()
    yield own
    if own.running:
        own.kill()


def test_a_replay_over_a_killed_broker_loses_nothing(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A broker that loses, doubles or reorders records when it is killed would pass for a sound one."""
    killed = []

    def kill_once(_plan: object, counts: dict[str, int]) -> None:
        if not killed and counts.get("acknowledged", 0) > 300:
            killed.append(counts["acknowledged"])
            broker.restart(kill=True)

    run = tmp_path / "run"
    document = replay(spark, trace_of(spark, 3000, 12, "killed"), broker.bootstrap, run, progress=kill_once)
    assert killed and killed[0] < 3000
    assert document["status"] == COMPLETE
    result = verify_run(spark, str(run))
    assert judge(result) == []
    total = result["total"]
    assert (total["expected"], total["acknowledged"], total["distinct"], total["lost"]) == (3000, 3000, 3000, 0)
    numbers = read_numbers(str(run))
    assert numbers["summary"]["offered"] == numbers["summary"]["acknowledged"] == 3000
    # The records that were due while nobody answered waited, and their waiting counts.
    assert numbers["summary"]["latency_max_ms"] > numbers["summary"]["sent_error_p50_ms"]
    assert len(numbers["seconds"]) >= 6
    assert numbers["summary"]["broker_cpu_seconds"] > 0
    assert numbers["summary"]["broker_rss_max_bytes"] > 10_000_000
    assert {one["executor"] for one in numbers["places"]} == {0, 1}
    page = write_report(str(run), str(run))
    assert "Every promise was kept" in page.read_text() and page.read_text().count("<svg") >= 5
    assert json.loads((run / "report.json").read_text())["summary"] == numbers["summary"]
    both = write_comparison(str(run), str(run), str(tmp_path / "both"))
    assert "run (A)" in both.read_text() or "factor" in both.read_text()
    assert kbroker(["replay", "report", str(tmp_path / "nothing")]) == 1
    assert "is no replay's directory" in capfd.readouterr().err


def test_a_verification_finds_what_is_wrong(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """A verification that cannot fail would prove nothing."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    run = tmp_path / "run"
    replay(spark, trace_of(spark, 300, 1, "wrong"), broker.bootstrap, run)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.auto.commit": False})
    partition = next(
        number for number in range(3) if consumer.get_watermark_offsets(TopicPartition("wrong", number))[1]
    )
    consumer.assign([TopicPartition("wrong", partition, 0)])
    first = consumer.poll(90)
    assert first is not None and first.error() is None
    headers = first.headers()
    assert headers is not None and headers[-1][0] == ID_HEADER
    consumer.close()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("wrong", first.value(), first.key(), partition, headers=headers)
    producer.produce("wrong", b"another", first.key(), partition, headers=headers)
    producer.produce("wrong", b"somebody else's", None, partition)
    assert producer.flush(20) == 0
    document = json.loads((run / "run.json").read_text())
    other = (partition + 1) % 3
    document["starting_offsets"]["wrong"][str(other)] = 1
    (run / "run.json").write_text(json.dumps(document))
    total = verify_run(spark, str(run), details=str(tmp_path / "details"))["total"]
    assert (total["duplicates"], total["damaged"], total["foreign"], total["lost"]) == (2, 1, 1, 1)
    kinds = {row["what"]: row["count"] for row in
             spark.read.parquet(str(tmp_path / "details")).groupBy("what").count().collect()}  # fmt: skip
    assert kinds == {"duplicate": 2, "damaged": 1, "lost": 1}


def test_a_stopped_replay_keeps_what_was_measured(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a long replay would cost everything measured until then."""
    stopped = []

    def stop_once(_plan: object, counts: dict[str, int]) -> None:
        if not stopped and counts.get("sent", 0) > 50:
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    run = tmp_path / "run"
    document = replay(spark, trace_of(spark, 6000, 600, "stopped"), broker.bootstrap, run, progress=stop_once)
    assert document["status"] == STOPPED
    summary = read_numbers(str(run))["summary"]
    assert summary["acknowledged"] > 50 and summary["offered"] + summary["unsent"] == 6000
    result = verify_run(spark, str(run))
    assert judge(result) == [] and result["total"]["excused"] == summary["unsent"]


def test_consumers_and_commits_are_part_of_a_replay(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """The load of readers, and their latency, would be missing."""
    run = tmp_path / "run"
    document = replay(spark, trace_of(spark, 900, 3, "mixed", "readers"), broker.bootstrap, run)
    kinds = read_numbers(str(run))["kinds"]
    consume, commit = kinds["consume"], kinds["commit"]
    offered = {kind: own["offered"] for kind, own in kinds.items()}
    assert offered == document["kinds"] == {"produce": 801, "consume": 49, "commit": 50}
    assert consume["acknowledged"] + consume["empty"] == consume["offered"] and consume["acknowledged"]
    assert commit["acknowledged"] == commit["offered"]
    assert judge(verify_run(spark, str(run))) == []


def test_what_keeps_a_replay_from_starting(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """The user would find out in the middle, from a log of Java; or a directory would look like a run."""
    trace = trace_of(spark, 10, 0.1, "nowhere")
    run = tmp_path / "run"
    with pytest.raises(ReplayError, match=r"topic nowhere does not exist .* --create-topics"):
        run_replay(spark, trace, Request(broker.bootstrap, str(run), Delivery()))
    with pytest.raises(ReplayError, match=r"127\.0\.0\.1"):
        replay(spark, trace, f"127.0.0.1:{free_port()}", run)
    with pytest.raises(ReplayError, match="the trace has no rows"):
        replay(spark, trace.where("false"), broker.bootstrap, run)
    with pytest.raises(ReplayError, match="contradict each other"):
        replay(spark, trace, broker.bootstrap, run, delivery=Delivery(acks="1"))
    with pytest.raises(ReplayError, match=r"the client refuses its settings: .*no\.such"):
        replay(spark, trace, broker.bootstrap, run, delivery=Delivery(client={"no.such": "1"}))
    assert [path.name for path in tmp_path.iterdir()] == ["broker"]
