"""What has to happen to one image of a cluster so that it becomes another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kbroker.metadata.image import (
    BrokersImage,
    ClusterImage,
    MetadataDelta,
    TopicChange,
    TopicImage,
    is_same_topic,
)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def difference(old: ClusterImage, new: ClusterImage) -> MetadataDelta:
    """The delta with which `old.apply` gives `new`.  A topic made anew under its name is deleted and created."""
    kept = [(old.topics[name], topic) for name, topic in new.topics.items() if _has(old, topic)]
    has_brokers = (old.brokers, old.controller_id) != (new.brokers, new.controller_id)
    return MetadataDelta(
        created=tuple(topic for topic in new.topics.values() if not _has(old, topic)),
        deleted=tuple(topic for topic in old.topics.values() if not _has(new, topic)),
        changed=tuple(TopicChange(before, after) for before, after in kept if before != after),
        brokers=BrokersImage(new.brokers, new.controller_id) if has_brokers else None,
        features=new.features if new.features != old.features else None,
        configs=_changed(old.configs, new.configs),
        quotas=_changed(old.quotas, new.quotas),
        security=old.security.difference(new.security),
        controllers=new.controllers if new.controllers != old.controllers else None,
    )


def _has(image: ClusterImage, topic: TopicImage) -> bool:
    known = image.topics.get(topic.name)
    return known is not None and is_same_topic(known.topic_id, topic.topic_id)


def _changed(
    old: Mapping[_Key, Mapping[str, _Value]], new: Mapping[_Key, Mapping[str, _Value]]
) -> dict[_Key, Mapping[str, _Value]]:
    return {key: new.get(key, {}) for key in (*old, *new) if old.get(key, {}) != new.get(key, {})}
