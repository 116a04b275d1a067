"""The quota on changes of topics, counted in partitions (KIP-599).

Request versions that know THROTTLING_QUOTA_EXCEEDED (`strict`) get it for each topic after the one that used up the
quota; the client may retry these after the throttle time.  For older versions all topics are changed, and the
connection is muted.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode, KafkaError
from kbroker.quotas.meters import QuotaKind, QuotaMeters
from kbroker.quotas.rules import Limit


class MutationQuota:
    """What one request may still change.  `throttle_ms`: for how long its client has to wait."""

    __slots__ = ("_limit", "_meter", "_now_ms", "_strict", "throttle_ms")

    def __init__(self, meters: QuotaMeters, limit: Limit, strict: bool, now_ms: int) -> None:
        self._meter = meters.meter(QuotaKind.CONTROLLER_MUTATION, limit, now_ms)
        self._limit = limit.per_second
        self._strict = strict
        self._now_ms = now_ms
        self.throttle_ms = 0

    def record(self, partitions: int) -> None:
        """Count partitions that are made or deleted.  KafkaError(THROTTLING_QUOTA_EXCEEDED), and nothing is counted,
        where the quota is used up and the request is `strict`."""
        bucket = self._meter.bucket
        assert bucket is not None
        throttle_ms = bucket.throttle_ms(self._limit, self._now_ms)
        if self._strict and throttle_ms > 0:
            self._note(throttle_ms)
            raise KafkaError.of(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        bucket.take(partitions, self._limit, self._now_ms)
        self._note(bucket.throttle_ms(self._limit, self._now_ms))

    def _note(self, throttle_ms: int) -> None:
        if throttle_ms > self.throttle_ms:
            if not self.throttle_ms:
                self._meter.throttled_count += 1
            self._meter.throttled_ms += throttle_ms - self.throttle_ms
            self.throttle_ms = throttle_ms
