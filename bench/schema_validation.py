"""What `confluent.value.schema.validation` costs: one producer into a topic with it and one without, in turn.

    python -m bench.schema_validation [--records 1000000] [--size 100] [--rounds 5] [--codec lz4]

A broker of its own and a registry on loopback; librdkafka with its defaults, acks=1, one partition.  Shown are the
medians of records per second and of the broker's CPU time for a million records; the registry is asked once.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.registry.stand_in import stand_in

PORTION = 10_000
KINDS = {"without": {}, "with": {"confluent.value.schema.validation": "true"}}


def produce(bootstrap: str, topic: str, value: bytes, records: int, codec: str) -> float:
    """Seconds until all are acknowledged."""
    settings = {"bootstrap.servers": bootstrap, "acks": "1", "compression.type": codec, "linger.ms": "5"}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    producer.list_topics(topic, 10)
    began = time.perf_counter()
    for _ in range(records // PORTION):
        refused = PORTION - producer.produce_batch(topic, [{"value": value}] * PORTION)
        assert not refused, refused
        while len(producer) > 10 * PORTION:
            producer.poll(0.001)
    assert producer.flush(60) == 0
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--codec", default="none", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, stand_in() as registry:
        schema = registry.add("measured", '"bytes"')
        value = b"\0" + schema.to_bytes(4, "big") + b"v" * (given.size - 5)
        settings = {"confluent.schema.registry.url": registry.url, "log.retention.bytes": str(1 << 30)}
        with BrokerProcess(Path(folder), settings) as broker:
            process = psutil.Process(broker.pid)
            rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
            costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for turn in range(given.rounds + 1):
                for kind, configs in KINDS.items():
                    topic = broker.create_topic(f"{kind}-{turn}", 1, configs)
                    before = sum(process.cpu_times()[:2])
                    seconds = produce(broker.bootstrap, topic, value, given.records, given.codec)
                    if turn:  # The first warms up.
                        rates[kind].append(given.records / seconds)
                        costs[kind].append((sum(process.cpu_times()[:2]) - before) / given.records * 1e6)
        for kind in KINDS:
            rate, cost = statistics.median(rates[kind]), statistics.median(costs[kind])
            print(f"{kind:8} {rate:12,.0f} records/s {cost:8.3f} s of the broker's CPU for a million")
        print(f"the registry was asked {len(registry.asked)} times")


if __name__ == "__main__":
    main()
