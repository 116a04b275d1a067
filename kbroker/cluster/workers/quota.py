"""A client's quota on changes of topics, on the way to the controller of another process (KIP-599).

The call carries the remaining quota; its answer carries what the controller has charged, which is then charged in the
process that has the client's connection.
"""

from __future__ import annotations

from kbroker.quotas.mutation_quota import MutationQuota


class ForwardedQuota(MutationQuota):
    """A copy of a quota that notes what it was charged with."""

    __slots__ = ("charged",)

    def __init__(self, quota: MutationQuota) -> None:
        self._meter = quota._meter
        self._limit = quota._limit
        self._now_ms = quota._now_ms
        self._strict = quota._strict
        self.throttle_ms = 0
        self.charged: list[int] = []

    def record(self, partitions: int) -> None:
        super().record(partitions)
        self.charged.append(partitions)
