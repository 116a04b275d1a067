"""What the brokers of a history are set to, some of it drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation.encrypted import tls_settings
from tests.simulation.unauthenticated_clients import security_settings

if TYPE_CHECKING:
    from tests.simulation.sockets import Weather
    from tests.simulation.world import World

PORT, DAY_SECONDS = 9092, 86_400.0
FEW_PRODUCERS = "20"
"""So many a broker remembers at most, where producers count on nothing."""
SMALL_FETCHES = {"replica.fetch.max.bytes": "65536", "replica.fetch.response.max.bytes": "65536"}
"""Where the network is narrow: a megabyte would not come through before a follower gives up, and asks for it again."""
FETCHED_BYTES, FETCHING_SECONDS = 10 << 20, 30.0
"""What an answer to a follower has at most (`replica.fetch.response.max.bytes`), and for how long that waits
(`replica.socket.timeout.ms`)."""


def host_of(node: int) -> str:
    """Where a broker is."""
    return f"127.83.73.{node}"


def fetch_settings(weather: Weather) -> dict[str, str]:
    """Those of followers: as an operator sets them where an answer would never come through as a whole.

    A follower of Kafka gives up then, too, however much of the answer has come, and asks for all of it again."""
    latency = sum(weather.latencies_ns) / len(weather.latencies_ns) / 1e9
    is_narrow = FETCHED_BYTES * latency > FETCHING_SECONDS * min(weather.rooms)
    return SMALL_FETCHES if is_narrow else {}


def drawn_settings(world: World, node: int, shared: Mapping[str, str]) -> dict[str, str]:
    """Those of one broker; `shared` are the same on all."""
    rng = world.rng
    forgets = world.forgets_after < DAY_SECONDS
    values = {
        "node.id": str(node),
        "listeners": f"PLAINTEXT://{host_of(node)}:{PORT}",
        "metrics.listener": "none",
        "num.network.threads": rng.choice(("1", "3", "3")),
        "socket.busy.poll.us": rng.choice(("0", "0", "50")),
        "auto.create.topics.enable": "false",
        "kbroker.fsync": rng.choice(("os", "commit")),
        "log.segment.bytes": rng.choice(("1048576", "1073741824")),
        "log.retention.check.interval.ms": rng.choice(("100", "1000", "300000")),
        "log.initial.task.delay.ms": rng.choice(("0", "300", "30000")),
        "log.cleaner.backoff.ms": rng.choice(("50", "1000", "15000")),
        "socket.request.max.bytes": "200000",
        "producer.id.expiration.ms": str(int(1000 * min(world.forgets_after, DAY_SECONDS))),
        "producer.id.expiration.check.interval.ms": "200" if forgets else "600000",
        "max.incremental.fetch.session.cache.slots": rng.choice(("1000", "1000", "3")),
        "queued.max.request.bytes": "200000" if world.is_large else rng.choice(("-1", "-1", "200000")),
        **shared,
        **(security_settings(host_of(node), PORT, world.reauth_ms) if world.is_secured else {}),
        **({"kbroker.max.producers": FEW_PRODUCERS} if forgets and world.later.random() < 0.5 else {}),
    }
    return values if world.encryption is None else values | tls_settings(values["listeners"], host_of(node))


__all__ = ["PORT", "SMALL_FETCHES", "drawn_settings", "fetch_settings", "host_of"]
