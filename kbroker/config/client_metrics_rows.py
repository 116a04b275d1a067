"""Settings of subscriptions to client metrics (KIP-714, ClientMetricsConfigs): columns as for topics."""

from __future__ import annotations

CLIENT_METRICS_ROWS = """
metrics|LIST|||filled|+|prefixes of the names of metrics that clients are to push; * for all
interval.ms|INT|300000|||+|how often clients push, in milliseconds
match|LIST|||filled|+|which clients are meant: name=pattern, all of which must fit; empty for all clients
"""
