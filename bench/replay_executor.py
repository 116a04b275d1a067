"""What one executor of a replay spends on a record, without Spark: CPU of this process against a kbroker of its own.

    python bench/replay_executor.py                     300,000/s for five seconds, by columns and one by one
    python bench/replay_executor.py --rate 100000 --seconds 10 --size 1000 --rounds 3

All threads of the process count: the one that sends, librdkafka's own, and the one that reads rows.  Rows are made
before the clock starts, with ids as a replay has them.  CPU depends less on neighbours than the rate does.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kbroker.replay.player.channel import Reporter  # noqa: E402
from kbroker.replay.player.executor import Ahead, Player, rare_collections  # noqa: E402
from kbroker.replay.player.operations import Totals  # noqa: E402
from kbroker.replay.player.outcome import Histogram, percentile  # noqa: E402
from kbroker.replay.player.settings import Delivery, Job  # noqa: E402
from tests.broker_process import BrokerProcess  # noqa: E402
from tests.compat.admin import Admin  # noqa: E402

BATCH_ROWS = 10_000
SOURCES = 16
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def rows_of(topic: str, rate: int, seconds: float, size: int) -> list[pa.RecordBatch]:
    """Prepared rows, evenly in time, in batches as Spark makes them."""
    total = round(rate * seconds)
    batches = []
    for first in range(0, total, BATCH_ROWS):
        numbers = range(first, min(first + BATCH_ROWS, total))
        count = len(numbers)
        batches.append(pa.RecordBatch.from_pydict({
            "due_us": pa.array([number * 1_000_000 // rate for number in numbers], pa.int64()),
            "source": pa.array([f"source-{number % SOURCES}" for number in numbers]),
            "sequence": pa.array(numbers, pa.int64()),
            "topic": pa.array([topic] * count),
            "partition": pa.nulls(count, pa.int32()),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([str(number).encode().ljust(size, b".") for number in numbers], pa.binary()),
            "headers": pa.nulls(count, HEADERS),
            "kind": pa.array(["produce"] * count),
            "group": pa.nulls(count, pa.string()),
            "id": pa.array([b"01234567/%016x/%d/source-%d" % (number, number, number % SOURCES) for number in numbers],
                           pa.binary()),
        }))  # fmt: skip
    return batches


def measure(bootstrap: str, topic: str, rows: list[pa.RecordBatch], *, by_columns: bool) -> str:
    """Plays the rows and says what it took."""
    job = Job(bootstrap, "01234567", Delivery(by_columns=by_columns), (topic,), {}, None, "", produces=True, lead_s=0.2)
    totals = Totals()
    reporter = Reporter(None, "", 0, totals.counts)
    player = Player(job, 0, totals, Ahead(rows), reporter)
    player.begin(time.time() + job.lead_s)
    late: Histogram = {}
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    with rare_collections():
        for batch in player.outcomes():
            for histogram in batch.column("sent_error").to_pylist():
                for bucket, count in histogram:
                    late[bucket] = late.get(bucket, 0) + count
    used, lasted = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - started - job.lead_s
    user, system = used.ru_utime - before.ru_utime, used.ru_stime - before.ru_stime
    count = totals.acknowledged
    p99 = (percentile(late, 0.99) or 0) / 1000
    return (
        f"{'by columns' if by_columns else 'one by one'}: {count:,} acknowledged, {totals.failed:,} failed, "
        f"{count / lasted:,.0f}/s, sent late p99 {p99:,.2f} ms, queue full {totals.queue_full_us / 1e6:.2f} s, "
        f"CPU {(user + system) / count * 1e6:.2f} us a record ({user / count * 1e6:.2f} user)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=("columns", "rows"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="replay-executor-") as folder:
        broker = BrokerProcess(Path(folder) / "broker").start()
        try:
            for _ in range(arguments.rounds):
                for by_columns in (True, False):
                    if arguments.only in (None, "columns" if by_columns else "rows"):
                        topic = Admin(broker.bootstrap).create_topic("executor", 2, {})
                        rows = rows_of(topic, arguments.rate, arguments.seconds, arguments.size)
                        print(measure(broker.bootstrap, topic, rows, by_columns=by_columns), flush=True)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
