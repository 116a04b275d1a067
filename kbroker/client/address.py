"""Addresses of brokers, and what listens there when it is no Kafka."""

from __future__ import annotations

import re
import struct

_ADDRESS = re.compile(r"^(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\s]+)):(?P<port>\d{1,9})$")
GREETING = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""ApiVersions v0: what every Kafka since 0.10 answers, and what makes other servers say what they are."""
FIRST_BYTES = 4


def parse_bootstrap(text: str, where: str = "kafka.bootstrap.servers") -> list[tuple[str, int]]:
    """Addresses out of `host:port[,host:port…]`.  ValueError names `where` and says which is wrong."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ADDRESS.match(part)
        if match is None:
            raise ValueError(f"{part!r} in {where} is not host:port")
        port = int(match["port"])
        if not 0 < port < 65536:
            raise ValueError(f"{part!r} in {where} is not host:port: a port is 1 to 65535")
        found.append((match["v6"] or match["host"], port))
    if not found:
        raise ValueError(f"{where} names no broker: give host:port[,host:port…]")
    return found


def other_protocol(head: bytes) -> str | None:
    """What a server speaks that answered GREETING with `head`; None when it may be Kafka's protocol."""
    if head == b"HTTP":
        return (
            "this address speaks HTTP, not Kafka's protocol: is it the broker's metrics.listener (by default "
            "port 9644) where its listener for clients (port 9092) is wanted?"
        )
    if head[:2] == b"\x15\x03":
        return "this address speaks TLS: plain text needs another listener, TLS security.protocol SSL or SASL_SSL"
    return None
