"""A Spark session for the commands: the user's own settings first, ours where there are none."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Where a column was made is of use to who made it; for a mapping it doubles the time to plan.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


@contextmanager
def spark_session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that ends with the block; one that is running already is used as it is, and goes on.

    master  a Spark master URL; None: what `spark-submit` or `spark-defaults.conf` says, else `local[*]`
    """
    from pyspark.sql import SparkSession

    from kbroker.replay import register

    running = SparkSession.getActiveSession()
    if running is not None:
        register(running)
        yield running
        return
    # Executors need the interpreter that has the package; on a local master that is this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    given = dict(conf or {})
    chosen = master or given.pop("spark.master", None)
    if chosen is not None:
        builder = builder.master(chosen)
        if chosen.startswith("local"):
            given = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} | given
    for key, value in (QUIET | given).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        register(session)
        yield session
    finally:
        session.stop()
