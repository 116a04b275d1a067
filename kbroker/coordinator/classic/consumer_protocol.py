"""The one thing that a coordinator reads in members' bytes: which topics the members of a consumer group subscribe to.

Protocol type "consumer": a 2-byte version, then ConsumerProtocolSubscription.  Later versions only add fields behind
those of version 0, so version 0 is the common prefix of all, and nothing behind it is read: some clients claim a later
version without sending its fields (kafka-go).  Kafka does the same (`ClassicGroup.computeSubscribedTopics`).
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker._fast.wire.codec import DecodeError
from kbroker.schemas import wire

PROTOCOL_TYPE = "consumer"
_VERSION_BYTES = 2
_COMMON_VERSION = 0


class SubscriptionError(ValueError):
    """Bytes that are no subscription."""


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str]:
    """All topics that the given subscriptions name.  SubscriptionError when one cannot be read."""
    program = wire.ConsumerProtocolSubscription.program(_COMMON_VERSION)
    topics: set[str] = set()
    for data in metadata:
        if len(data) < _VERSION_BYTES:
            raise SubscriptionError(f"a subscription of {len(data)} bytes has no version")
        try:
            decoded = program.decode(data, _VERSION_BYTES)
        except DecodeError as error:
            raise SubscriptionError(str(error)) from error
        topics.update(decoded.topics)
    return frozenset(topics)
