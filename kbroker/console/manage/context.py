"""What an action has: the broker's parts as the viewer sees them, and a client that acts as the viewer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.console.parameters import BadParameterError, NotShownError, NotThereError
from kbroker.errors import KafkaError
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.types import EARLIEST, LATEST

if TYPE_CHECKING:
    from kbroker.console.manage.fields import Fields
    from kbroker.console.parts import ConsoleParts
    from kbroker.console.viewer_client import ViewerClient
    from kbroker.metadata.image import ClusterImage, TopicImage

SETTLE_SECONDS = 5.0
MOST_ID = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Context:
    """See the module."""

    parts: ConsoleParts
    client: ViewerClient

    def topic(self, name: str) -> TopicImage:
        """A topic that the viewer may describe.  NotThereError."""
        image = self.parts.services.metadata_cache.topic(name)
        if image is None or not self.parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, name):
            raise NotThereError(f"there is no topic {name}")
        return image

    def partitions(self, topic: TopicImage, fields: Fields) -> list[int]:
        """The one that the fields name, or all of a topic.  BadParameterError."""
        chosen = fields.number("partition", -1, 0, MOST_ID)
        if chosen >= len(topic.partitions):
            raise BadParameterError(f"there is no partition {chosen} of {topic.name}")
        return [chosen] if chosen >= 0 else list(range(len(topic.partitions)))

    def require(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        """NotShownError where the viewer may not do that: so that a plan says it, and not only what follows."""
        if not self.parts.may(operation, kind, name):
            kind_name = "the cluster" if kind is ResourceKind.CLUSTER else f"the {kind.name.lower()} {name}"
            raise NotShownError(f"This takes {operation.name} on {kind_name}.")

    async def settle(self, condition: Callable[[ClusterImage], bool]) -> None:
        """Until this broker's own metadata show a change that another one has made, SETTLE_SECONDS at most, so that the
        next page shows it."""
        await self.parts.services.metadata_cache.wait_until(condition, SETTLE_SECONDS)

    async def record_count(self, topic: TopicImage) -> int | None:
        """Offsets between first and last ones, of all partitions; None where not all of them can be asked."""
        indexes = range(len(topic.partitions))
        try:
            first = await self.client.offsets(topic.name, indexes, EARLIEST)
            last = await self.client.offsets(topic.name, indexes, LATEST)
        except KafkaError:
            return None
        return sum(last[index] - first[index] for index in indexes)


def plural(number: int, one: str, many: str = "") -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def listed(settings: Mapping[str, str]) -> str:
    """Settings as a sentence has them."""
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
