"""The requests whose cost is counted, each one row; the cells of a kind share its brokers, in this order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.cell import SMALL_BATCH_RECORDS
from bench.counting import group_cells, kraft, raw_cells, secured_cells
from bench.counting.counted import Counted, Serve

LARGE_BATCH_RECORDS = 9_400
PLAIN, SECURED, KRAFT = "plain", "secured", "kraft"
NODES = {PLAIN: (1,), SECURED: (2,), KRAFT: (3, 4)}
"""The brokers of each kind; clients are connected to the first."""
REPLICAS = NODES[KRAFT]


@dataclass(frozen=True, slots=True)
class RequestCell:
    """`requests` are served for the first part, twice as many for the second; one costs what lies between, divided."""

    name: str
    prepare: Callable[[Counted], Serve]
    requests: int = 200
    kind: str = PLAIN


REQUESTS = (
    RequestCell("produce-one", raw_cells.produce()),
    RequestCell("produce-batch", raw_cells.produce(SMALL_BATCH_RECORDS)),
    RequestCell("produce-batch-1m", raw_cells.produce(LARGE_BATCH_RECORDS), 6),
    RequestCell("produce-lz4", raw_cells.produce(SMALL_BATCH_RECORDS, "lz4")),
    RequestCell("produce-zstd", raw_cells.produce(SMALL_BATCH_RECORDS, "zstd")),
    RequestCell("produce-8-partitions", raw_cells.produce_to(8)),
    RequestCell("produce-64-partitions", raw_cells.produce_to(64), 20),
    RequestCell("fetch-16k", raw_cells.fetch(1 << 14)),
    RequestCell("fetch-1m", raw_cells.fetch(raw_cells.ONE_MB), 30),
    RequestCell("fetch-session-100", raw_cells.fetch_in_session),
    RequestCell("metadata", raw_cells.metadata),
    RequestCell("api-versions", raw_cells.api_versions),
    RequestCell("list-offsets", raw_cells.list_latest),
    RequestCell("commit-1", group_cells.commit(1)),
    RequestCell("commit-10", group_cells.commit(10)),
    RequestCell("offset-fetch", group_cells.fetch_offsets),
    RequestCell("heartbeat-classic", group_cells.heartbeat),
    RequestCell("heartbeat-consumer", group_cells.consumer_heartbeat),
    RequestCell("transaction-10", group_cells.transaction, 20),
    RequestCell("share-fetch-acknowledge", group_cells.share_fetch, 20),
    RequestCell("acl-produce-one", secured_cells.produce_with_rights, kind=SECURED),
    RequestCell("scram-login", secured_cells.scram_login, 30, SECURED),
    RequestCell("tls-produce-one", secured_cells.over_tls(raw_cells.produce()), kind=SECURED),
    RequestCell("tls-produce-1m", secured_cells.over_tls(raw_cells.produce(LARGE_BATCH_RECORDS)), 6, SECURED),
    RequestCell("tls-fetch-1m", secured_cells.over_tls(raw_cells.fetch(raw_cells.ONE_MB)), 12, SECURED),
    RequestCell("produce-one-all-followed", raw_cells.produce(acks=-1, replicas=REPLICAS), 30, KRAFT),
    RequestCell("forwarded-config", kraft.forwarded, 30, KRAFT),
)
