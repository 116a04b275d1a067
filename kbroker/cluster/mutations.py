"""Changes of topics counted against the quota of the client that asks for them (KIP-599)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbroker.cluster.requests import TopicOutcome
from kbroker.errors import KafkaError, bare
from kbroker.metadata.image import TopicImage
from kbroker.quotas.mutation_quota import MutationQuota


def charged(
    outcomes: Sequence[TopicOutcome], quota: MutationQuota | None, partitions: Callable[[TopicImage], int]
) -> list[TopicOutcome]:
    """The outcomes in their order, each topic counted with `partitions(topic)`; THROTTLING_QUOTA_EXCEEDED in the place
    of those that the quota has no room for."""
    return list(outcomes) if quota is None else [_charged(outcome, quota, partitions) for outcome in outcomes]


def _charged(outcome: TopicOutcome, quota: MutationQuota, partitions: Callable[[TopicImage], int]) -> TopicOutcome:
    if outcome.topic is None:
        return outcome
    try:
        quota.record(partitions(outcome.topic))
    except KafkaError as error:
        return TopicOutcome(outcome.name, error=bare(error))
    return outcome
