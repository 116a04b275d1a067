"""The slow reference of Fetch: every partition read by Python, the answer built of structs and encoded by the codec.

What `kbroker._fast.requests` gives is compared with this, byte for byte and step by step.
"""

from __future__ import annotations

from typing import Any

from kbroker._fast.log.fetch_target import FetchTarget
from kbroker._fast.net.pending import DelayedFetch
from kbroker.handlers.records import fetch
from kbroker.handlers.records.fetch_partition import read_partition
from kbroker.replication.fetch_session import FetchPlan

FetchResponse: Any = fetch.FetchResponse
FIRST_VERSION_WITH_TOPIC_IDS = 13


def reference_fetch(ctx: Any, request: Any) -> Any:
    """What `handle_fetch` does, for fewer than MANY_PARTITIONS."""
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    targets = [fetch._target(topic, row, by_id) for topic in request.topics for row in topic.partitions]
    plan = fetch._plan(ctx, request, fetch._named_once(targets), by_id)
    if not isinstance(plan, FetchPlan):
        return plan
    if request.isolation_level not in (0, 1) and any(fetch._is_read(ctx, target, by_id) for target in plan.targets):
        return fetch._refuse_level(ctx, request, plan, by_id)
    replica_id = request.replica_id if ctx.api_version < 15 else request.replica_state.replica_id
    return ReferenceRead(ctx, request, plan, replica_id).start()


class ReferenceRead:
    """One fetch from its plan to its answer, over one or more attempts."""

    def __init__(self, ctx: Any, request: Any, plan: FetchPlan, replica_id: int) -> None:
        self.ctx = ctx
        self.request = request
        self.plan = plan
        self.targets = list(plan.targets)
        self.replica_id = replica_id
        self.max_bytes = min(request.max_bytes, ctx.services.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)

    def start(self) -> Any:
        rows, size, urgent = self._read()
        if urgent or size >= self.min_bytes or self.request.max_wait_ms <= 0:
            return self._answer(rows)
        manager = self.ctx.services.replica_manager
        places = tuple(
            manager.partition(target.topic or "", target.index) for target, row, _ in rows if not row.error_code
        )
        return (
            DelayedReference(self, manager.purgatory, places, self.request.max_wait_ms)
            if places
            else self._answer(rows)
        )

    def attempt(self, force: bool) -> Any | None:
        rows, size, urgent = self._read()
        return self._answer(rows) if force or urgent or size >= self.min_bytes else None

    def _read(self) -> tuple[list[tuple[FetchTarget, Any, bool]], int, bool]:
        rows = []
        left, found, any_urgent = self.max_bytes, 0, False
        committed = self.request.isolation_level == 1
        for target in self.targets:
            row, urgent, _ = read_partition(
                self.ctx.services, self.ctx.api_version, self.replica_id, committed, target, left, found == 0
            )
            rows.append((target, row, urgent))
            found += len(row.records)
            left = max(0, left - len(row.records))
            any_urgent = any_urgent or urgent
        return rows, found, any_urgent

    def _answer(self, rows: list[tuple[FetchTarget, Any, bool]]) -> Any:
        plan = self.plan
        if plan.session is not None:
            news = [
                (target, row, urgent)
                for target, row, urgent in rows
                if target.must_respond(row.error_code, len(row.records), row.high_watermark, row.log_start_offset)
                or urgent
            ]
            if plan.incremental:
                rows = news
                self.ctx.services.fetch_sessions.rotate(
                    plan.session, [target for target, row, _ in rows if len(row.records)]
                )
        topics: dict[Any, Any] = {}
        for target, row, _ in rows:
            key = target.topic_id if self.ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS else target.topic
            topic = topics.setdefault(
                key, fetch.FetchableTopicResponse(topic=target.topic or "", topic_id=target.topic_id)
            )
            topic.partitions.append(row)
        return FetchResponse(session_id=plan.session_id, responses=list(topics.values()))


class DelayedReference(DelayedFetch):
    """Such a fetch while it waits."""

    def __init__(self, read: ReferenceRead, purgatory: Any, partitions: Any, wait_ms: int) -> None:
        super().__init__(purgatory, partitions, wait_ms)
        self._read = read

    def attempt(self, force: bool) -> bool:
        answer = self._read.attempt(force)
        if answer is None:
            return False
        self.answer(answer)
        return True
