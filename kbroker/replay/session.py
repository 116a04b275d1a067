"""A Spark session for the commands: the user's own settings first, ours where there are none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MOST_ARROW_BYTES = 16 << 20

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Recording where each column was made helps only users with code of their own, and doubles the planning of a
    # mapping.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    ARROW_BYTES: str(MOST_ARROW_BYTES),
}


@contextmanager
def bounded_batches(spark: SparkSession) -> Iterator[None]:
    """Within the block Spark hands rows to Python in pieces of 16 MiB at most, or as small as the session has it.

    By default a piece is 10,000 rows, which with values of a megabyte exceeds an executor's memory.
    """
    unset = spark.conf.get(ARROW_BYTES, "1") != spark.conf.get(ARROW_BYTES, "2")
    with configured(spark, ARROW_BYTES, str(MOST_ARROW_BYTES)) if unset else nullcontext():
        yield


@contextmanager
def configured(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Within the block the session has a setting, which is not its own otherwise."""
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


@contextmanager
def spark_session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that ends with the block; one that is running already is used as it is, and goes on.

    master  a Spark master URL; None: what `spark-submit` or `spark-defaults.conf` says, else `local[*]`

    JavaError before Spark starts where there is no Java for it.  What the JVM prints goes to a file
    (`spark_log`), unless `conf` has `spark.log.level`.
    """
    from pyspark.sql import SparkSession

    from kbroker.replay import register
    from kbroker.replay.interruption import interruption_kept, keeping_the_handler, py4j_silent
    from kbroker.replay.java import check_java
    from kbroker.replay.load.errors import explain as of_load
    from kbroker.replay.spark_log import SparkLog
    from kbroker.replay.spark_python import workers_python
    from kbroker.replay.traces.errors import explain as of_trace

    running = SparkSession.getActiveSession()
    if running is not None:
        register(running)
        yield running
        return
    check_java()
    # Executors need the interpreter that has the package; on a local master that is this one.
    os.environ.setdefault("PYSPARK_PYTHON", workers_python())
    builder = SparkSession.builder.appName(name)
    given = dict(conf or {})
    chosen = master or given.pop("spark.master", None)
    if chosen is not None:
        builder = builder.master(chosen)
        if chosen.startswith("local"):
            given = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} | given
    for key, value in (QUIET | given).items():
        builder = builder.config(key, value)
    log, is_named = SparkLog(), False
    try:
        with interruption_kept(), py4j_silent():
            if "spark.log.level" in given:
                # A user who turns Spark's log on wants to see it.
                session = keeping_the_handler(builder.getOrCreate)
            else:
                with log.started_here():
                    session = keeping_the_handler(builder.getOrCreate)
            try:
                register(session)
                yield session
            finally:
                session.stop()
    except Exception as error:
        # The command explains the project's own errors itself, without the log.
        if not of_load(error) and not of_trace(error) and (note := log.note()):
            is_named = True
            error.add_note(note)
        raise
    finally:
        if not is_named:
            log.discard()
