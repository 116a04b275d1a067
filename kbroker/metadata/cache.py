"""The current image of the cluster and those who want to hear of changes.

One writer (the local controller, or what follows a remote one) publishes; all other parts read.  Readers and the
writer share the event loop, so between two awaits the image stands still.

`publish` swaps the image first and then calls every subscriber before it returns: by the time that any other request
sees a topic, its logs exist.  A subscriber that fails does not keep the others from hearing; the failure is logged,
and the partitions concerned answer with their own storage error until the cause is gone.

Readers may keep what they worked out from a topic in `derived(view)`, a mapping by topic name for each way of looking
at topics (`view` is any hashable value).  An entry is dropped when its topic changes, all of them when brokers do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

from kbroker.metadata.image import ClusterImage, MetadataDelta, TopicImage
from kbroker.waiting import Changes, set_within

logger = logging.getLogger("kbroker.metadata")

Subscriber = Callable[[ClusterImage, ClusterImage, MetadataDelta], None]


class MetadataCache:
    """Holds the image that requests are answered from."""

    __slots__ = ("_by_id", "_changes", "_derived", "_filled", "_image", "_subscribers", "_topics")

    def __init__(self, image: ClusterImage) -> None:
        self._filled = asyncio.Event()
        self._changes = Changes()
        self._subscribers: list[Subscriber] = []
        self._derived: dict[Hashable, dict[str, object]] = {}
        self._set(image)

    def _set(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: Mapping[str, TopicImage] = image.topics
        self._by_id: Mapping[bytes, TopicImage] = image.topics_by_id
        if image.controller_id >= 0:
            self._filled.set()

    def mark_filled(self) -> None:
        """The cluster has said what there is, though no broker is its controller (KRaft)."""
        self._filled.set()

    @property
    def is_filled(self) -> bool:
        """Whether a controller has said what there is."""
        return self._filled.is_set()

    async def filled(self, seconds: float) -> None:
        """Wait until a controller has said what there is, at most for so long."""
        await set_within(self._filled, seconds)

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        return self._image

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name, or None."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic with that id, or None."""
        return self._by_id.get(topic_id)

    def derived(self, view: Hashable) -> dict[str, Any]:
        """What readers keep of topics for `view`, by topic name.  Look it up anew for each request."""
        known = self._derived.get(view)
        if known is None:
            known = self._derived[view] = {}
        return known

    def _forget(self, delta: MetadataDelta) -> None:
        if delta.brokers is not None:
            self._derived.clear()
            return
        for topic in (*delta.deleted, *(change.old for change in delta.changed)):
            for known in self._derived.values():
                known.pop(topic.name, None)

    def subscribe(self, callback: Subscriber) -> None:
        """Call `callback(old, new, delta)` after every change, in the order of subscription."""
        self._subscribers.append(callback)

    async def wait_until(self, holds: Callable[[ClusterImage], bool], seconds: float) -> bool:
        """Wait for an image of which this holds, for `seconds` at most; whether it does."""
        return await self._changes.wait_until(lambda: holds(self._image), seconds)

    def apply(self, delta: MetadataDelta) -> None:
        """Publish the image after `delta`."""
        self.publish(self._image.apply(delta), delta)

    def publish(self, image: ClusterImage, delta: MetadataDelta) -> None:
        """Make `image` the current one and tell the subscribers."""
        old = self._image
        new = replace(image, version=old.version + 1)
        self._set(new)
        self._forget(delta)
        for callback in self._subscribers:
            try:
                callback(old, new, delta)
            except Exception:
                logger.exception(
                    "a subscriber failed to apply metadata version %d (%d topics created, %d deleted, %d changed)",
                    new.version,
                    len(delta.created),
                    len(delta.deleted),
                    len(delta.changed),
                )
        self._changes.announce()
