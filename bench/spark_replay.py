"""How fast a replay sends, and how late: synthetic traces at steady rates against a kbroker of its own.

    python bench/spark_replay.py                                        20,000/s and 300,000/s for ten seconds each
    python bench/spark_replay.py --rates 50000,100000 --seconds 20 --size 100 --no-ids
    python bench/spark_replay.py --bootstrap 127.0.0.1:9092             a broker that runs already
    python bench/spark_replay.py --rates 100000 --kill --verify         `kill -9` in the middle, everything read back
    python bench/spark_replay.py --one-by-one                           each record from Python, as with transactions

For each rate: records acknowledged per second, how late records were sent (intended to sent), the latency from the
intended time, and the CPU seconds of the broker.  A rate that cannot be held shows as lateness that grows and as an
achieved rate below the offered one.  Needs the extra `spark` and Java 17.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.broker_process import BrokerProcess  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from kbroker.replay.player.channel import Counts
    from kbroker.replay.player.plan import Plan

SHOWN = (
    "offered_per_second", "acknowledged_per_second", "sent_error_p50_ms", "sent_error_p99_ms", "latency_p50_ms",
    "latency_p99_ms", "queue_full_seconds", "broker_cpu_seconds",
)  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="20000,300000", help="records per second, with commas")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--sources", type=int, default=16)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2, help="of local[N]")
    parser.add_argument("--ids", action=argparse.BooleanOptionalAction, default=True, help="ids to verify by")
    parser.add_argument("--linger-ms", type=float, default=5.0)
    parser.add_argument("--bootstrap", help="a broker that runs already")
    parser.add_argument("--one-by-one", action="store_true", help="hand each record over from Python")
    parser.add_argument("--kill", action="store_true", help="kill -9 and restart the broker in the middle")
    parser.add_argument("--verify", action="store_true", help="read everything back and judge")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    arguments = parser.parse_args()
    if arguments.kill and arguments.bootstrap is not None:
        parser.error("--kill kills a broker of its own: leave --bootstrap out")
    if arguments.verify and not arguments.ids:
        parser.error("--verify needs ids")
    return arguments


def trace_of(spark: SparkSession, rate: int, arguments: argparse.Namespace) -> DataFrame:
    """Records evenly in time, each of a source in turn, without keys."""
    count = round(rate * arguments.seconds)
    return spark.range(0, count, 1, arguments.cores).selectExpr(
        f"cast(floor(id * 1e6 / {rate}) as bigint) arrival_time",
        f"concat('source-', id % {arguments.sources}) source",
        "id sequence",
        f"'replay-{rate}-{time.time_ns()}' topic",
        "cast(null as int) partition",
        "cast(null as binary) key",
        f"cast(rpad(cast(id as string), {arguments.size}, 'abcdefghij') as binary) value",
        f"cast({arguments.size} as int) value_size",
        "cast(array() as array<struct<key: string, value: binary>>) headers",
        "'produce' kind",
        "cast(null as string) group",
    )


def kill_in_the_middle(broker: BrokerProcess) -> Callable[[Plan, Counts], None]:
    """What hears of a replay's progress and kills the broker once half is acknowledged."""
    done: list[bool] = []

    def watch(plan: Plan, counts: Counts) -> None:
        if not done and counts.get("acknowledged", 0) > plan.records // 2:
            done.append(True)
            broker.restart(kill=True)

    return watch


def verify(spark: SparkSession, run: str) -> None:
    from kbroker.replay.verify import verify_run
    from kbroker.replay.verify_result import judge

    result = verify_run(spark, run)
    print("; ".join(f"{name} {number:,}" for name, number in result["total"].items()), judge(result) or "as promised")


def main() -> None:
    arguments = parse_arguments()
    from kbroker.replay.player.run import Request, run_replay
    from kbroker.replay.player.settings import Delivery
    from kbroker.replay.report.numbers import summary_of
    from kbroker.replay.session import spark_session

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    figures: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="spark-replay-") as folder:
        broker = None
        bootstrap = arguments.bootstrap
        if bootstrap is None:
            broker = BrokerProcess(Path(folder) / "broker")
            broker.start()
            bootstrap = broker.bootstrap
        conf = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": str(arguments.cores)}
        try:
            with spark_session("spark-replay", f"local[{arguments.cores}]", conf) as spark:
                for rate in map(int, arguments.rates.split(",")):
                    delivery = Delivery(linger_ms=arguments.linger_ms, by_columns=not arguments.one_by_one)
                    run = f"{folder}/run-{rate}"
                    request = Request(
                        bootstrap, run, delivery, create_partitions=arguments.partitions, ids=arguments.ids
                    )
                    kill = kill_in_the_middle(broker) if arguments.kill and broker is not None else None
                    run_replay(spark, trace_of(spark, rate, arguments), request, kill)
                    summary = summary_of(run)
                    figures[rate] = {name: summary[name] for name in SHOWN}
                    cells = (f"{name} {value:,.5g}" for name, value in figures[rate].items() if value is not None)
                    print("; ".join(cells), flush=True)
                    if arguments.verify:
                        verify(spark, run)
        finally:
            if broker is not None:
                broker.stop()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
