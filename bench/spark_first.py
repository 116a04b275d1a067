"""The first query of a new Spark session, as somebody meets it who runs a job: one process and one JVM for each.

    python -m bench.spark_first                                    a kbroker of its own, a million records, five rounds
    python -m bench.spark_first --workers-python .venv/bin/python  without the early imports of kbroker-spark-python

Each round starts a session for Spark's own Kafka connector, one for `kbroker` and one for `kbroker-log`, in turn; each
scans the topic once (`noop` sink), counted from asking for the DataFrame to the last row, and writes as many rows into
a new topic, another session again.  A JVM that is warm, which `bench/spark_read.py` measures, is several times quicker.
Sessions' own starts are printed beside: from the first import of PySpark to a session with the sources registered.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.spark_read import count, create, delete, fill, frame_of, open_session, parser_of, scan_all, write_rows
from tests.broker_process import BrokerProcess

CORES = 2
JOBS = (("kafka", "scan"), ("kbroker", "scan"), ("kbroker-log", "scan"), ("kafka", "write"), ("kbroker", "write"))


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--workers-python", help="PYSPARK_PYTHON of the sessions; without it, register()'s choice")
    parser.add_argument("--job", nargs=5, help=argparse.SUPPRESS)
    return parser.parse_args()


def job(arguments: argparse.Namespace) -> None:
    """One session's one query; prints seconds to start and seconds of the query."""
    format_name, what, bootstrap, topic, data = arguments.job
    began = time.perf_counter()
    spark = open_session(CORES, jars=format_name == "kafka")
    ready = time.perf_counter()
    if what == "write":
        write_rows(spark, format_name, arguments, CORES, {"kafka.bootstrap.servers": bootstrap, "topic": topic})
    else:
        scan_all(frame_of(spark, format_name, bootstrap, topic, Path(data)))
    print(json.dumps([ready - began, time.perf_counter() - ready]))
    spark.stop()


def run_job(arguments: argparse.Namespace, format_name: str, what: str, *place: str) -> tuple[float, float]:
    environ = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if arguments.workers_python:
        environ["PYSPARK_PYTHON"] = arguments.workers_python
    words = f"-m bench.spark_first --records {arguments.records} --size {arguments.size} --job".split()
    words = [sys.executable, *words, format_name, what, *place]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{format_name} {what}: {done.stderr[-2000:]}")
    started, took = json.loads(done.stdout.splitlines()[-1])
    return started, took


def run(arguments: argparse.Namespace, broker: BrokerProcess) -> dict[tuple[str, str], list[tuple[float, float]]]:
    topic = fill(broker.bootstrap, arguments)
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {name: [] for name in JOBS}
    for number in range(arguments.rounds):
        for format_name, what in JOBS if number % 2 else reversed(JOBS):
            target = create(broker.bootstrap, arguments.partitions, "-write") if what == "write" else topic
            figure = run_job(arguments, format_name, what, broker.bootstrap, target, str(broker.data_dir))
            if what == "write":
                if (found := count(broker.bootstrap, target, arguments.partitions)) != arguments.records:
                    raise SystemExit(f"{format_name} wrote {found} records instead of {arguments.records}")
                delete(broker.bootstrap, target)
            figures[format_name, what].append(figure)
            print(f"round {number + 1}  {format_name:12} {what:6} {figure[1]:6.2f} s, its session {figure[0]:6.2f} s")
    return figures


def report(figures: dict[Any, list[tuple[float, float]]], records: int) -> None:
    medians = {name: statistics.median(took for _, took in rounds) for name, rounds in figures.items()}
    starts = {name: statistics.median(started for started, _ in rounds) for name, rounds in figures.items()}
    print(f"\n{'first query':20}{'seconds':>9}{'rows/s':>12}{'of kafka':>10}{'session s':>11}")
    for (format_name, what), took in medians.items():
        ratio = medians["kafka", what] / took
        start = starts[format_name, what]
        print(f"{format_name + ' ' + what:20}{took:9.2f}{records / took:12,.0f}{ratio:9.1f}x{start:11.1f}")


def main() -> None:
    arguments = parse_arguments()
    if arguments.job:
        job(arguments)
        return
    with tempfile.TemporaryDirectory(prefix="spark-first-") as folder:
        broker = BrokerProcess(Path(folder))
        broker.start()
        try:
            figures = run(arguments, broker)
        finally:
            broker.stop()
    report(figures, arguments.records)


if __name__ == "__main__":
    main()
