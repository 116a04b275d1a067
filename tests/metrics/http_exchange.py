"""Requests to the metrics listener, and sources to answer them from."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kbroker._fast.base.counters import RequestStats
from kbroker.metrics import (
    GroupSummary,
    MetricsServer,
    Sources,
)
from kbroker.types import TopicPartition


@dataclass
class Log:
    topic_partition: TopicPartition
    log_start_offset: int = 5
    high_watermark: int = 90
    last_stable_offset: int = 80
    log_end_offset: int = 100
    size_bytes: int = 1000
    segment_count: int = 2
    parent: str = "/data"


def sources(logs: list[Log] | None = None, max_partitions: int = 100) -> Sources:
    requests = RequestStats()
    requests.add(0, 15_000, 200, 50)
    requests.add(0, 25_000, 300, 50)
    requests.add_error(0)
    requests.add(3, 10**12, 30, 400)
    kept = [Log(TopicPartition("t", 0)), Log(TopicPartition("t", 1))] if logs is None else logs
    return Sources(
        version="1.2.3",
        node_id=7,
        cluster_id="abc",
        requests=requests,
        api_name=lambda key: {0: "Produce", 3: "Metadata"}.get(key, "other"),
        connections=lambda: {
            "kbroker_connections": {("PLAINTEXT",): 3},
            "kbroker_connections_accepted": {("PLAINTEXT",): 9},
            "kbroker_connections_refused": {("limit",): 2},
            "kbroker_connections_closed": {("idle",): 4},
        },
        logs=lambda: kept,
        groups=lambda: [GroupSummary('g"1\n', "Stable", 2, [("t", 0, 40), ("t", 1, 95), ("gone", 0, 1)])],
        max_partitions=max_partitions,
    )


async def exchange(server: MetricsServer, data: bytes) -> bytes:
    """Send, then read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    answer = await reader.read(-1)
    writer.close()
    return answer


async def get(server: MetricsServer, path: str, *headers: str, method: str = "GET") -> tuple[int, str, bytes]:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
    head, _, body = (await exchange(server, "\r\n".join(lines).encode())).partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body
