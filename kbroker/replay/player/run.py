"""The driver of a replay: checks, the Spark job, progress, a stop, and the run's directory.

A run is a directory, complete when it has its name:

    run.json          what was replayed, with which settings, when, and how it ended (`status`: complete or stopped)
    outcomes/         rows of OUTCOME_SCHEMA, written by executors
    expected/         (source, sequence, topic, partition, checksum) of each record that was to be produced
    broker.parquet    samples of the broker beside

`verify.json`, `report.html`, `report.json` and Parquet of the report's numbers join it later.
"""

from __future__ import annotations

import json
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pyspark import InheritableThread, StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from kbroker import __version__
from kbroker.replay.player.channel import Channel, Counts
from kbroker.replay.player.column_sender import library_for
from kbroker.replay.player.executor import Play
from kbroker.replay.player.outcome import OUTCOME_SCHEMA
from kbroker.replay.player.plan import Plan, expected, make_plan, prepare
from kbroker.replay.player.sampling import Sampler
from kbroker.replay.player.settings import Delivery, Job, ReplayError
from kbroker.replay.player.topics import Offsets, check_client, check_transactions, ready_topics
from kbroker.replay.session import bounded_batches
from kbroker.replay.trace_output import complete_directory
from kbroker.replay.trace_schema import PRODUCE
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPLETE, STOPPED = "complete", "stopped"
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be replayed where.

    output             directory of the run
    executors          tasks that send together; None: as many as Spark has places for
    create_partitions  create missing topics with so many partitions; None: missing topics are an error
    topic_prefix       before each topic's name
    ids                give each record an id, without which the run cannot be verified
    metrics_url        the broker's Prometheus page
    """

    bootstrap: str
    output: str
    delivery: Delivery
    executors: int | None = None
    create_partitions: int | None = None
    topic_prefix: str = ""
    ids: bool = True
    metrics_url: str | None = None
    name: str = ""
    overwrite: bool = False


def run_replay(
    spark: SparkSession, trace: DataFrame, request: Request, progress: Callable[[Plan, Counts], None] | None = None
) -> dict[str, object]:
    """Replays a trace (rows in the trace schema) and leaves the run's directory; gives what is in its run.json.

    `progress` gets the counts of all executors together, a few times a second.  Ctrl-C stops the replay and keeps
    what has been measured; a second one ends at once and keeps nothing.  Raises ReplayError.
    """
    request.delivery.check()
    if "://" in request.output:
        raise ReplayError(
            f"{request.output}: a run needs a directory that the driver and all executors see as a file's"
        )
    run_id = secrets.token_hex(4)
    check_client(request.bootstrap, request.delivery)
    if request.topic_prefix:
        trace = trace.withColumn("topic", F.concat(F.lit(request.topic_prefix), "topic"))
    # Persisted, so that it is read and shaped once for the plan, the expectations of a verification and the rows.
    trace = trace.persist(StorageLevel.DISK_ONLY)
    try:
        with bounded_batches(spark):
            return _replay(spark, trace, request, run_id, progress)
    finally:
        trace.unpersist()


def _replay(
    spark: SparkSession,
    trace: DataFrame,
    request: Request,
    run_id: str,
    progress: Callable[[Plan, Counts], None] | None,
) -> dict[str, object]:
    plan = make_plan(trace)
    offsets = ready_topics(request.bootstrap, request.delivery, plan, request.create_partitions)
    check_transactions(request.bootstrap, run_id, request.delivery)
    executors = request.executors or spark.sparkContext.defaultParallelism
    with complete_directory(request.output, overwrite=request.overwrite) as directory:
        if request.ids and plan.kinds[PRODUCE]:
            expected(trace).write.parquet(f"{directory}/expected")
        with _channel(spark) as channel:
            sampler = Sampler(request.bootstrap, request.metrics_url)
            job = _job(request, plan, run_id, channel)
            rows = prepare(trace, plan, run_id, executors, ids=request.ids)
            outcomes = rows.mapInArrow(Play(job), OUTCOME_SCHEMA, barrier=True)
            sampler.start()
            started = time.time()
            try:
                stopped = _watch(
                    spark, lambda: outcomes.write.parquet(f"{directory}/outcomes"), channel,
                    (lambda: progress(plan, channel.totals())) if progress is not None else None,
                )  # fmt: skip
            finally:
                sampler.stop()
        document = _document(request, plan, run_id, executors, offsets, started)
        document |= {"status": STOPPED if stopped else COMPLETE, "ended_at": time.time()}
        local = directory.removeprefix("file://")
        sampler.write(Path(local) / "broker.parquet")
        (Path(local) / "run.json").write_text(json.dumps(document, indent=2))
    return document


def _job(request: Request, plan: Plan, run_id: str, channel: Channel) -> Job:
    return Job(
        bootstrap=request.bootstrap, run_id=run_id, delivery=request.delivery, topics=tuple(sorted(plan.topics)),
        subscriptions=plan.subscriptions, channel=channel.address, token=channel.token,
        produces=bool(plan.kinds[PRODUCE]),
    )  # fmt: skip


@contextmanager
def _channel(spark: SparkSession) -> Iterator[Channel]:
    """A channel on the address by which executors know the driver."""
    host = str(spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))
    try:
        channel = Channel(host)
    except OSError:
        channel = Channel("127.0.0.1")
    with channel:
        yield channel


def _watch(spark: SparkSession, write: Callable[[], None], channel: Channel, tell: Callable[[], None] | None) -> bool:
    """Runs the job and tells of its progress; whether it was stopped by Ctrl-C."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            write()
        except BaseException as error:
            failures.append(error)

    interrupts = 0

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        channel.stop()

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, interrupt) if main else None
    thread = InheritableThread(target=work, name="replay-job", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(_POLL_S)
            if tell is not None:
                tell()
            if interrupts > 1:
                spark.sparkContext.cancelAllJobs()
                thread.join(10)
                raise KeyboardInterrupt
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    if failures:
        raise failures[0]
    return interrupts > 0


def _document(
    request: Request, plan: Plan, run_id: str, executors: int, offsets: Offsets, started: float
) -> dict[str, object]:
    delivery = asdict(request.delivery)
    # Settings of the client may hold passwords; which were given is enough.
    delivery["client"] = sorted(request.delivery.client)
    delivery["by_columns"] = library_for(request.delivery) is not None
    return {
        "kbroker": __version__,
        "run_id": run_id,
        "name": request.name,
        "bootstrap": request.bootstrap,
        "executors": executors,
        "ids": request.ids,
        "delivery": delivery,
        "promises": request.delivery.promises(),
        "records": plan.records,
        "kinds": plan.kinds,
        "sources": plan.sources,
        "bytes": plan.bytes,
        "seconds": plan.seconds,
        "topics": sorted(plan.topics),
        "starting_offsets": offsets,
        "submitted_at": started,
    }


def read_run(path: str) -> JsonObject:
    """A run's run.json.  ReplayError when there is none."""
    try:
        found: dict[str, object] = json.loads((Path(path) / "run.json").read_text())
    except FileNotFoundError:
        raise ReplayError(f"{path} is no replay's directory: it has no run.json") from None
    except (OSError, ValueError) as error:
        raise ReplayError(f"{path}/run.json cannot be read: {error}") from None
    return found


__all__ = ["COMPLETE", "STOPPED", "ReplayError", "Request", "read_run", "run_replay"]
