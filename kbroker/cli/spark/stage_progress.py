"""How far Spark is, on a terminal: the parts of the stages that run, and for how long they have."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 0.5


@contextmanager
def stages_shown(spark: SparkSession, what: str, *, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Within the block, a line that says how many parts are done; nothing if `quiet` or standard error is no terminal.

    What the block gets ends the line before the block's end.
    """
    done = threading.Event()
    if quiet or not sys.stderr.isatty():
        yield done.set
        return
    thread = threading.Thread(target=_show, args=(spark, what, done), name="stage-progress", daemon=True)
    thread.start()

    def end() -> None:
        done.set()
        thread.join(10)

    try:
        yield end
    finally:
        end()


def _show(spark: SparkSession, what: str, done: threading.Event) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from tqdm import tqdm

    tracker = spark.sparkContext.statusTracker()
    form = "{desc}: {n_fmt} of {total_fmt} parts, {elapsed}"
    with tqdm(desc=what, total=0, leave=False, bar_format=form) as bar:
        while not done.wait(SECONDS):
            try:
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            except (Py4JError, OSError):
                return  # The session ends.
            running = [each for each in stages if each is not None]
            bar.total = sum(each.numTasks for each in running)
            bar.n = sum(each.numCompletedTasks for each in running)
            bar.refresh()
