"""How each kind of cell is run against one broker, and the rates that follow from what a client counted."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from bench import groups, java_clients, librdkafka, raw
from bench.brokers import Broker
from bench.cell import Cell, Load, Result
from bench.hot_memory import HotMemory
from bench.limits import DiskWatch, client_note, settle

Runner = Callable[[Cell, Broker, Load], Result]

#: Cells against a broker that is up.  The kinds of `bench.operations` start and stop brokers themselves.
RUNNERS: dict[str, Runner] = {
    "produce": raw.produce,
    "fetch": raw.fetch,
    "metadata": raw.metadata,
    "api_versions": raw.api_versions,
    "e2e": raw.end_to_end,
    "heartbeat": groups.heartbeat,
    "heartbeat_classic": groups.heartbeat_classic,
    "commit_offsets": groups.commit_offsets,
    "group_members": groups.many_members,
    "librdkafka_produce": librdkafka.produce,
    "librdkafka_consume": librdkafka.consume,
    "librdkafka_transact": librdkafka.transact,
    "java_produce": java_clients.produce,
    "java_consume": java_clients.consume,
    "java_share": java_clients.share,
    "java_e2e": java_clients.end_to_end,
}
#: Batches from here on are written in pieces of about 1 MB.  What comes out of the disk takes such pieces, too.
LARGE_BATCH_RECORDS = 1_000
WRITING = ("produce", "librdkafka_produce", "java_produce")
#: One message at a time: a disk that is still at work for the cell before shows in the slowest of a hundred.
LATENCY = ("e2e", "java_e2e")
#: Several threads of the client do its work.
THREADED = ("librdkafka_produce", "librdkafka_consume", "java_produce", "java_consume", "java_share")


def takes_memory(cell: Cell) -> bool:
    """Whether a run of the cell fills a good part of a gigabyte of the page cache: requests of one record don't."""
    return cell.cold or (cell.kind in WRITING and not (cell.kind == "produce" and cell.records == 1))


def memory_for(cell: Cell, memory: HotMemory) -> AbstractContextManager[None]:
    """What is entered around a run of the cell: memory in use for what it fills, if that is much."""
    if not takes_memory(cell):
        return nullcontext()
    return memory.lent(generous=cell.cold or cell.records >= LARGE_BATCH_RECORDS)


def run(cell: Cell, broker: Broker, load: Load) -> Result:
    """Run one cell; the result has rates, times, CPU and what was the limit if it was not the broker."""
    if cell.kind in WRITING:
        settle()
    elif cell.kind in LATENCY:
        os.sync()
    watch = DiskWatch(broker)
    watched = replace(load, around=lambda: watch.during(load.around()))
    result = with_rates(RUNNERS[cell.kind](cell, broker, watched))
    notes = [client_note(result, threads=2 if cell.kind in THREADED else 1), watch.note()]
    if any(notes) and cell.kind not in ("storm", *LATENCY):
        result["note"] = "; ".join(note for note in notes if note)
    return result


def with_rates(result: Result) -> Result:
    """Rates and CPU per unit, next to the counts that they come from."""
    seconds, requests, records = result["seconds"], result.get("requests", 0), result.get("records", 0)
    moved = max(result.get("bytes_in", 0), result.get("bytes_out", 0), result.get("bytes", 0))
    if seconds and requests:
        result["requests_per_s"] = round(requests / seconds, 1)
    if seconds and records:
        result["records_per_s"] = round(records / seconds)
    if seconds and moved:
        result["mb_per_s"] = round(moved / seconds / 1e6, 1)
    cpu = result.get("broker_cpu_s", 0.0)
    if cpu and requests:
        result["cpu_us_per_request"] = round(cpu / requests * 1e6, 2)
    if cpu and records:
        result["cpu_us_per_record"] = round(cpu / records * 1e6, 4)
    if cpu and moved:
        result["cpu_s_per_gb"] = round(cpu / moved * 1e9, 3)
    return result
