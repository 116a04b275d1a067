"""The one thing that a coordinator reads in members' bytes: which topics the members of a consumer group subscribe to.

Protocol type "consumer": a 2-byte version, then ConsumerProtocolSubscription.  Later versions only add fields behind
the topics, so an unknown one is read with the newest table that there is.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker._fast.codec import DecodeError
from kbroker.schemas import message

PROTOCOL_TYPE = "consumer"


class SubscriptionError(ValueError):
    """Bytes that are no subscription."""


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str]:
    """All topics that the given subscriptions name.  SubscriptionError when one cannot be read."""
    subscription = message("ConsumerProtocolSubscription")
    topics: set[str] = set()
    for data in metadata:
        if len(data) < 2:
            raise SubscriptionError(f"a subscription of {len(data)} bytes has no version")
        version = int.from_bytes(data[:2], "big", signed=True)
        if version < 0:
            raise SubscriptionError(f"subscription version {version}")
        try:
            decoded = subscription.program(min(version, subscription.max_version)).decode(data, 2)
        except DecodeError as error:
            raise SubscriptionError(str(error)) from error
        topics.update(decoded.topics)
    return frozenset(topics)
