"""The interface to the part that copies the partitions that a broker follows, for the parts that say which ones these
are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbroker.metadata.image import Endpoint
    from kbroker.replication.partition import Partition
    from kbroker.types import TopicPartition


class Fetchers(Protocol):
    """See the module."""

    def follow(self, partition: Partition) -> None:
        """Copy the partition from its leader, as its leader and epoch are by now."""

    def forget(self, topic_partition: TopicPartition) -> None:
        """Copy it no longer."""

    def note_leaders(self, endpoints: Mapping[int, Endpoint]) -> None:
        """Where leaders are, as the controller says."""
