"""A driver on a standalone cluster: `-m tests.replay.cluster_job MASTER BOOTSTRAP TOPIC COPY FOLDER`.

Copies a topic into another with the data source, loads it to Parquet, replays its records, verifies, and prints what
came of it as one line of JSON.
"""

from __future__ import annotations

import json
import sys


def main(master: str, bootstrap: str, topic: str, copy: str, folder: str) -> None:
    from kbroker.replay.load import LoadRequest, load_topics
    from kbroker.replay.player.run import Request, run_replay
    from kbroker.replay.player.settings import Delivery
    from kbroker.replay.session import spark_session
    from kbroker.replay.traces import read_trace
    from kbroker.replay.verify import verify_run

    options = {"kafka.bootstrap.servers": bootstrap}
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    with spark_session("kbroker-cluster", master, conf) as spark:
        read = spark.read.format("kbroker").options(**options).option("subscribe", topic).load()
        rows = read.count()
        copied = read.selectExpr("key", "value").write.format("kbroker").mode("append")
        copied.options(**options).option("topic", copy).save()
        loaded = load_topics(spark, LoadRequest(bootstrap, f"{folder}/loaded", [topic])).rows
        trace = read_trace(spark, [topic], "kafka", options=options)
        request = Request(
            bootstrap, f"{folder}/run", Delivery(), executors=2, create_partitions=2, topic_prefix="again-"
        )
        run = run_replay(spark, trace.rows, request)
        total = verify_run(spark, f"{folder}/run")["total"]
    found = {"rows": rows, "loaded": loaded, "status": run["status"], "executors": run["executors"], "total": total}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
