"""Lanes as tasks of Spark, in rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.client.list_offsets import TopicPartition
from kbroker.replay.load.job_state import JobState, added
from kbroker.replay.load.lanes import LaneResult, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = TypeVar("Work")


def run_lanes(
    spark: SparkSession,
    state: JobState,
    target: Target,
    lanes: list[tuple[Work, int]],
    run: Callable[[Target, tuple[Work, int]], LaneResult],
    progress: Callable[[int, int], None] | None,
) -> list[LaneResult]:
    """Each lane a task, with the position where it ends; rounds of as many as run at a time, so that the driver can
    tell how far it is.  Where tasks bring states back, each runs as often as it takes."""
    context = spark.sparkContext
    size = max(context.defaultParallelism, 1) * 2
    results: dict[TopicPartition, LaneResult] = {}
    left, done = list(lanes), 0
    while left:
        chosen, left = left[:size], left[size:]
        now = replace(target, states=state.states())
        found = context.parallelize(chosen, len(chosen)).map(partial(run, now)).collect()
        state.took(found)
        for each, one in zip(chosen, found, strict=True):
            results[one.at] = added(results.get(one.at), one)
            if one.position < each[1]:
                left.append(each)
            else:
                done += 1
        if progress is not None:
            progress(done, len(lanes))
    return list(results.values())
