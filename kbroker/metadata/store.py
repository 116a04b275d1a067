"""What keeps the cluster's metadata: the interface between the rules for changing it and a place on disk.

Every method that changes something returns after the change is durable, and applies all of it or nothing.  Methods
block for as long as their change is large, and for an fsync: what requests ask for runs in a thread (`StoreCalls`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from kbroker.errors import KafkaStorageError
from kbroker.metadata.features import Features
from kbroker.metadata.image import ConfigResource, MetadataDelta, QuotaEntity, TopicImage
from kbroker.metadata.security_image import SecurityImage

PRODUCER_ID_BLOCK_LENGTH = 1000

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class StoreCalls:
    """Calls of the store that the loop awaits: in a thread of `executor`, or at once where there is none (tests)."""

    __slots__ = ("_executor",)

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor

    async def __call__(
        self, call: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        """What `call` returns or raises.  Once begun it comes to its end, even if the one that awaits it is gone."""
        if self._executor is None:
            return call(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: call(*args, **kwargs))


class MetadataStoreError(KafkaStorageError):
    """The store cannot be read or written; the message says which file and what to do."""


class CorruptMetadataError(MetadataStoreError):
    """What the store holds is damaged or contradicts itself."""


class MetadataVersionError(MetadataStoreError):
    """The store was written by a newer kbroker, or is not kbroker's at all."""


class ClusterIdMismatchError(MetadataStoreError):
    """The store belongs to another cluster than the log directories."""


def damaged(path: Path, reason: str) -> str:
    """The text of a CorruptMetadataError: what is known, and what can be done."""
    return (
        f"the metadata store {path} is damaged ({reason}). The log directories are untouched. Restore the file from a "
        f"backup, or salvage it with `sqlite3 {path} .recover`. What cannot be salvaged is made anew from the log "
        "directories, without settings: move the file away, `kbroker metadata rebuild`"
    )


class ProducerIdBlock(NamedTuple):
    """Ids `first_id` to `first_id + length - 1`, given to one broker for good."""

    first_id: int
    length: int


class MetadataStore(Protocol):
    """Topics, settings of all kinds of resources, levels of features, the cluster id and the next producer id."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters of URL-safe base64."""

    def topics(self) -> list[TopicImage]:
        """Every topic, by name."""

    def write(self, delta: MetadataDelta) -> None:
        """Store what a delta changes, all or none; brokers and controllers are not kept.  Skips unknown topics."""

    def keep_spare(self) -> None:
        """Keep what deleting topics needs when the disk is full."""

    def configs(self) -> dict[ConfigResource, dict[str, str]]:
        """What was set at run time for brokers (the empty name stands for all of them), groups and client metrics."""

    def features(self) -> Features:
        """The levels of features that were set, and their epoch."""

    def client_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """What clients may use, by entity."""

    def security(self) -> SecurityImage:
        """ACLs, SCRAM credentials and delegation tokens."""

    def begin_broker_epoch(self, node_id: int | None = None) -> tuple[int, int]:
        """The number of this start, larger than those of all before it, and that of the last one; -1 for none.

        `node_id`: of a broker other than the one that keeps the store."""

    def allocate_producer_id_block(self) -> ProducerIdBlock:
        """The next ids, which no one was given before and no one will be given again."""

    def close(self) -> None:
        """Release the files.  Closing twice is harmless."""
