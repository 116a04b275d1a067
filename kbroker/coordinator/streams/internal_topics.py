"""Makes the internal topics of streams applications: repartition topics and changelogs that a heartbeat found missing.

The heartbeat's answer does not wait for them; the next one finds them there.  While a topic is being created it is not
requested again.  If the creation fails, answers report the reason for a while, and the next heartbeat tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kbroker.cluster.requests import DEFAULT, NewTopic
from kbroker.coordinator.streams.configuration import InternalTopic
from kbroker.errors import ErrorCode, KafkaError, bare

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.controller.interface import BrokerRequests
    from kbroker.quotas.mutation_quota import MutationQuota

logger = logging.getLogger("kbroker.groups")


class InternalTopics:
    """See the module's docstring."""

    def __init__(self, controller: BrokerRequests, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # Why a topic could not be made, and until when heartbeats say so, in seconds on the clock.
        self._failures: dict[str, tuple[str, float]] = {}

    def create(
        self, group_id: str, topics: Mapping[str, InternalTopic], shown_ms: int, quota: MutationQuota | None = None
    ) -> None:
        """Begin to make topics; heartbeats say for `shown_ms` what fails."""
        wanted = [topic for name, topic in topics.items() if name not in self._under_way]
        if wanted:
            self._under_way.update(topic.name for topic in wanted)
            task = asyncio.get_running_loop().create_task(self._create(group_id, wanted, shown_ms, quota))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        """Why topics could not be made lately."""
        now = self._clock.monotonic()
        self._failures = {name: each for name, each in self._failures.items() if each[1] > now}
        return {name: self._failures[name][0] for name in names if name in self._failures}

    async def _create(
        self, group_id: str, topics: Iterable[InternalTopic], shown_ms: int, quota: MutationQuota | None
    ) -> None:
        requests = [
            NewTopic(
                topic.name,
                topic.partitions,
                DEFAULT if topic.replication_factor is None else topic.replication_factor,
                configs=dict(topic.configs),
            )
            for topic in topics
        ]
        errors: dict[str, KafkaError] = {}
        try:
            outcomes = await self._controller.create_group_topics(requests, quota)
            errors = {each.name: each.error for each in outcomes if each.error is not None}
        except KafkaError as failure:
            errors = dict.fromkeys((request.name for request in requests), bare(failure))
        finally:
            self._under_way.difference_update(request.name for request in requests)
        until = self._clock.monotonic() + shown_ms / 1000
        for name, error in errors.items():
            # Another broker, or a client, was sooner.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.warning("group %s: internal topic %s cannot be made: %s", group_id, name, error)
                self._failures[name] = (error.message or error.code.name, until)
