"""A load in a process of its own, to be killed: `-m tests.replay.load_process BOOTSTRAP TOPIC DIRECTORY LOCAL`."""

from __future__ import annotations

import sys


def main(bootstrap: str, topic: str, directory: str, local: str) -> None:
    from pyspark.sql import SparkSession

    from kbroker.replay.load import LoadRequest, load_topics
    from tests.replay.conftest import SPARK_SETTINGS

    builder = SparkSession.builder
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.local.dir", local).getOrCreate()
    load_topics(spark, LoadRequest(bootstrap, directory, [topic], max_rows=60))


if __name__ == "__main__":
    main(*sys.argv[1:])
