"""What the broker tells about itself: Prometheus text, health and readiness over HTTP.

Metrics is one of the lowest layers.  It knows the rest of the broker only by the Protocols in `sources`; the broker
hands in its live parts as one `Sources` value.  A scrape has two steps: `snapshot.take` copies what it needs out of
the live objects on the event loop, where they belong, and `exposition.render` turns the copy into text on a thread,
so that a big answer never stalls the loop.  The Prometheus client library is imported by the first scrape.
"""

from __future__ import annotations

from kbroker.metrics.http_server import MetricsServer
from kbroker.metrics.loop_delay import LoopDelaySampler
from kbroker.metrics.readiness import Problem, Readiness, ReadyState
from kbroker.metrics.sources import GroupSummary, LogView, Sources
from kbroker.metrics.start import start_metrics_server

__all__ = [
    "GroupSummary",
    "LogView",
    "LoopDelaySampler",
    "MetricsServer",
    "Problem",
    "Readiness",
    "ReadyState",
    "Sources",
    "start_metrics_server",
]
