"""The table of cells: one workload each, as one row.  `bench.runners` knows how a row is run.

A cell that writes stops after `max_bytes`, a quarter of that to warm up before: more than the kernel lets lie dirty
measures the disk, more than a part of `bench.hot_memory` the machine's host, and that of the quicker side first.
"""

from __future__ import annotations

from bench.cell import SMALL_BATCH_RECORDS as SMALL
from bench.cell import Cell

ONE_MB = 1 << 20
IDEMPOTENT_OFF = "enable.idempotence=false"


def _raw() -> list[Cell]:
    return [
        Cell("one-1", "one record, 1 connection", "produce", 1),
        Cell("one-50", "one record, 50 connections", "produce", 50),
        Cell("batch-1", "150 x 100 B, 1 connection, acks 1", "produce", 1, SMALL),
        Cell("batch-16", "150 x 100 B, 16 connections, acks 1", "produce", 16, SMALL),
        Cell("batch-1-all", "150 x 100 B, 1 connection, acks all", "produce", 1, SMALL, acks=-1),
        Cell("batch-16-all", "150 x 100 B, 16 connections, acks all", "produce", 16, SMALL, acks=-1),
        Cell("batch-16-hot", "150 x 100 B, 16 connections, 1 partition", "produce", 16, SMALL, partitions=1),
        Cell("batch-1m", "1 MB batches (9,400 x 100 B), 4 connections", "produce", 4, 9_400),
        Cell("batch-1m-1k", "1 MB batches (1,000 x 1 KB), 4 connections", "produce", 4, 1_000, 1_024),
        Cell("lz4-16", "150 x 100 B in lz4, 16 connections", "produce", 16, SMALL, codec="lz4"),
        Cell("zstd-16", "150 x 100 B in zstd, 16 connections", "produce", 16, SMALL, codec="zstd"),
        Cell("lz4-1m", "9,400 x 100 B in lz4, 4 connections", "produce", 4, 9_400, codec="lz4"),
        Cell("zstd-1m", "9,400 x 100 B in zstd, 4 connections", "produce", 4, 9_400, codec="zstd"),
        Cell("fetch-16k-1", "fetch 16 KB, 1 connection", "fetch", 1, fetch_bytes=16_384),
        Cell("fetch-16k-16", "fetch 16 KB, 16 connections", "fetch", 16, fetch_bytes=16_384),
        Cell("fetch-1m-1", "fetch 1 MB, 1 connection", "fetch", 1, fetch_bytes=ONE_MB),
        Cell("fetch-1m-16", "fetch 1 MB, 16 connections", "fetch", 16, fetch_bytes=ONE_MB),
        *(
            Cell(
                f"fetch-1m-{n}-system",
                f"fetch 1 MB, {n} connections, the system's congestion control",
                "fetch",
                n,
                fetch_bytes=ONE_MB,
                system_congestion=True,
            )
            for n in (1, 4, 16)
        ),
        Cell("fetch-16k-16-cold", "fetch 16 KB, 16 connections, cold", "fetch", 16, fetch_bytes=16_384, cold=True),
        Cell(
            "fetch-1m-1-cold", "fetch 1 MB, 1 connection, cold", "fetch", 1, fetch_bytes=ONE_MB, partitions=1, cold=True
        ),
        Cell("fetch-1m-16-cold", "fetch 1 MB, 16 connections, cold", "fetch", 16, fetch_bytes=ONE_MB, cold=True),
        Cell("metadata", "Metadata of one topic, 50 connections", "metadata", 50, partitions=1),
        Cell("api-versions", "ApiVersions, 50 connections", "api_versions", 50),
        Cell("e2e-1000", "end to end at 1,000/s", "e2e", partitions=1, rate=1_000),
        Cell("e2e-5000", "end to end at 5,000/s", "e2e", partitions=1, rate=5_000),
        Cell("e2e-1000-of-100", "end to end at 1,000/s, 100 partitions", "e2e", partitions=100, rate=1_000, apart=True),
        Cell(
            "e2e-1000-of-1000",
            "end to end at 1,000/s, 1,000 partitions",
            "e2e",
            partitions=1_000,
            rate=1_000,
            apart=True,
        ),
    ]


def _sweeps() -> list[Cell]:
    """One-record requests again, over more and more partitions, then from more and more connections."""
    cells = [
        Cell(f"partitions-{n}", f"one record, 50 connections, {n:,} partitions", "produce", 50, partitions=n,
             apart=n > 100, sweep=("partitions",))
        for n in (1, 10, 100, 1_000, 10_000)
    ]  # fmt: skip
    cells += [
        Cell(
            f"connections-{n}", f"one record, {n:,} connections", "produce", n, apart=n > 1_000, sweep=("connections",)
        )
        for n in (10, 100, 1_000, 10_000)
    ]
    return cells


def _groups() -> list[Cell]:
    return [
        Cell("heartbeat-1", "heartbeat of a consumer group, 1 member", "heartbeat", 1, partitions=1),
        Cell("heartbeat-50", "heartbeats of a consumer group, 50 members", "heartbeat", 50, partitions=50),
        Cell("heartbeat-classic-50", "heartbeats of the classic protocol, 50 members", "heartbeat_classic", 50),
        Cell("members-1000", "1,000 members of a consumer group, from the last join until stable", "group_members",
             consumers=1_000, partitions=1_000, apart=True),
        Cell("commit-1", "commit of 1 offset, 16 connections", "commit_offsets", 16, 1),
        Cell("commit-10", "commit of 10 offsets, 16 connections", "commit_offsets", 16, 10),
    ]  # fmt: skip


def _librdkafka() -> list[Cell]:
    cells = []
    variants = (("", "acks 1", ("acks=1",)),
                ("-idempotent", "idempotent", ("enable.idempotence=true",)),
                ("-lz4", "lz4", ("acks=1", "compression.codec=lz4")),
                ("-zstd", "zstd", ("acks=1", "compression.codec=zstd")))  # fmt: skip
    for size, label, rate in ((100, "100 B", 2_000_000), (1_024, "1 KB", 500_000)):
        for suffix, how, settings in variants:
            name = f"librdkafka-{size}{suffix}"
            title = f"librdkafka producer, {label}, {how}"
            cells.append(
                Cell(name, title, "librdkafka_produce", record_bytes=size, settings=settings, records_per_s=rate)
            )
    cells.append(
        Cell("transactions-100", "librdkafka transactions of 100 records of 100 B", "librdkafka_transact", records=100,
             partitions=1, settings=("linger.ms=0",))
    )  # fmt: skip
    for count in (1, 4, 16):
        title = f"librdkafka group of {count}, 100 B"
        cells.append(Cell(f"group-{count}", title, "librdkafka_consume", consumers=count, records_per_s=2_000_000))
    cells.append(
        Cell("group-1-1k", "librdkafka group of 1, 1 KB", "librdkafka_consume", consumers=1, record_bytes=1_024,
             records_per_s=600_000)
    )  # fmt: skip
    return cells


def _java() -> list[Cell]:
    cells = []
    variants = (("", "acks 1", ("acks=1", IDEMPOTENT_OFF)),
                ("-idempotent", "idempotent", ("acks=all", "enable.idempotence=true")),
                ("-lz4", "lz4", ("acks=1", IDEMPOTENT_OFF, "compression.type=lz4")),
                ("-zstd", "zstd", ("acks=1", IDEMPOTENT_OFF, "compression.type=zstd")),
                ("-transactions", "transactions of 100 ms", ("acks=all", "transaction.duration.ms=100")))  # fmt: skip
    for size, label, rate in ((100, "100 B", 600_000), (1_024, "1 KB", 150_000)):
        for suffix, how, settings in variants:
            title = f"Java ProducerPerformance, {label}, {how}"
            cells.append(
                Cell(
                    f"java-{size}{suffix}",
                    title,
                    "java_produce",
                    record_bytes=size,
                    settings=settings,
                    records_per_s=rate,
                )
            )
        title = f"Java ConsumerPerformance, {label}"
        cells.append(
            Cell(
                f"java-consume-{size}", title, "java_consume", record_bytes=size, records_per_s=1_500_000 * 100 // size
            )
        )
        if size == 100:
            title = "Java share group of 4, 100 B"
            cells.append(Cell("java-share-4", title, "java_share", consumers=4, records_per_s=300_000))
        title = f"Java EndToEndLatency, {label}, acks all"
        cells.append(Cell(f"java-e2e-{size}", title, "java_e2e", record_bytes=size, acks=-1))
    return cells


def _operations() -> list[Cell]:
    return [
        Cell("connections-storm", "10,000 connections at once", "storm", 10_000),
        Cell("start", "start on an empty directory", "start"),
        Cell("idle", "idle, one minute", "idle"),
        Cell("restart-10000", "restart with 10,000 partitions", "restart_partitions", partitions=10_000),
        Cell("restart-killed", "restart after kill -9, 5 GB not flushed", "restart_killed", 4, 9_400, partitions=8,
             gigabytes=5.0),
        Cell("compaction", "compaction of 1 GB of keyed records", "compaction", partitions=1, gigabytes=1.0),
        Cell("retention", "retention deletes 2 GB in 16 MB segments", "retention", 4, 9_400, partitions=4,
             gigabytes=2.0),
    ]  # fmt: skip


CELLS: tuple[Cell, ...] = (*_raw(), *_sweeps(), *_groups(), *_librdkafka(), *_java(), *_operations())


def chosen(names: str) -> tuple[Cell, ...]:
    """The cells of a comma list; a name ending in `*` takes all that begin so.  ValueError for an unknown one."""
    if not names:
        return CELLS
    picked: list[Cell] = []
    for name in names.split(","):
        found = [cell for cell in CELLS if cell.name == name or (name[-1:] == "*" and cell.name.startswith(name[:-1]))]
        if not found:
            raise ValueError(f"no cell {name!r}; there are {', '.join(cell.name for cell in CELLS)}")
        picked += found
    return tuple(dict.fromkeys(picked))
