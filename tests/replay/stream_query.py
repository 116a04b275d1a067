"""A streaming query in a process of its own, to be killed: `-m tests.replay.stream_query BOOTSTRAP TOPIC FOLDER`.

Writes a topic's records to Parquet under FOLDER/rows, its checkpoint is FOLDER/checkpoint.  Runs until it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(bootstrap: str, topic: str, folder: Path) -> None:
    from pyspark.sql import SparkSession

    from kbroker.replay import register
    from tests.replay.conftest import SPARK_SETTINGS

    builder = SparkSession.builder
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.local.dir", str(folder / "local")).getOrCreate()
    register(spark)
    rows = (
        spark.readStream.format("kbroker")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "700")
        .load()
    )
    query = (
        rows.selectExpr("cast(value as string) value", "partition", "offset")
        .coalesce(1)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "rows"))
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
