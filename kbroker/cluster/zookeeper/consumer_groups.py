"""Groups of Kafka 0.8's consumers in ZooKeeper: members, owners and offsets, read and, offsets alone, written.

Those consumers write there themselves.  Brokers write offsets for clients of OffsetCommit v0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.consumer_znodes import ConsumerZnode, decode_consumer, decode_offset, encode_offset
from kbroker.cluster.zookeeper.reader import ZnodeReader
from kbroker.cluster.zookeeper.session import ConnectionLossError, set_or_create
from kbroker.cluster.zookeeper.znode_json import ZnodeError
from kbroker.errors import CoordinatorNotAvailableError, InvalidGroupIdError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.zookeeper.session import ZooKeeper

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class OldGroup:
    """A group as its znodes have it.  `owners` are threads of members (`ID-0`); `nonsense` has a reason for each znode
    that is left out."""

    group_id: str
    members: Mapping[str, ConsumerZnode]
    owners: Mapping[TopicPartition, str]
    offsets: Mapping[TopicPartition, int]
    nonsense: Mapping[str, str]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not (self.members or self.owners or self.offsets or self.nonsense)

    @property
    def is_alive(self) -> bool:
        """Whether a member is there: its znode is ephemeral, even where its content makes no sense."""
        ids = paths.consumer_ids(self.group_id)
        return bool(self.members or self.owners) or any(path.startswith(f"{ids}/") for path in self.nonsense)


class ConsumerGroupZnodes:
    """Groups under /consumers."""

    __slots__ = ("_zookeeper",)

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the next offsets.  InvalidGroupIdError; CoordinatorNotAvailableError while ZooKeeper is away."""
        group = _named(group_id)
        await _all(
            set_or_create(self._zookeeper, paths.consumer_offset(group, *each), encode_offset(offset))
            for each, offset in offsets.items()
        )

    async def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offsets of those that have one.  Errors as in `commit`."""
        group, reader, wanted = _named(group_id), ZnodeReader(self._zookeeper), list(partitions)
        found = await _all(reader.read(paths.consumer_offset(group, *each), decode_offset) for each in wanted)
        return {name: each[0] for name, each in zip(wanted, found, strict=True) if each is not None}

    async def groups(self) -> list[str]:
        """The names of all groups."""
        return await ZnodeReader(self._zookeeper).children(paths.CONSUMERS)

    async def group(self, group_id: str) -> OldGroup:
        """A group; an empty one where there is none."""
        group, reader = _named(group_id), ZnodeReader(self._zookeeper)
        ids = paths.consumer_ids(group)
        names = await reader.children(ids)
        members = await asyncio.gather(*(reader.read(f"{ids}/{each}", decode_consumer) for each in names))
        owned = await _partitions(reader, paths.consumer_owners(group))
        owners = await asyncio.gather(*(reader.read(paths.consumer_owner(group, *each), _text) for each in owned))
        kept = await _partitions(reader, paths.consumer_offsets(group))
        offsets = await asyncio.gather(
            *(reader.read(paths.consumer_offset(group, *each), decode_offset) for each in kept)
        )
        return OldGroup(
            group,
            {name: found[0] for name, found in zip(names, members, strict=True) if found is not None},
            {name: found[0] for name, found in zip(owned, owners, strict=True) if found is not None},
            {name: found[0] for name, found in zip(kept, offsets, strict=True) if found is not None},
            reader.nonsense,
        )


async def _partitions(reader: ZnodeReader, path: str) -> list[TopicPartition]:
    """Partitions that have a znode under `path`/TOPIC."""
    topics = await reader.children(path)
    indexes = await asyncio.gather(*(reader.children(f"{path}/{each}") for each in topics))
    found = [
        TopicPartition(topic, int(index))
        for topic, children in zip(topics, indexes, strict=True)
        for index in children
        if index.isascii() and index.isdigit() and str(int(index[:10])) == index
    ]
    return sorted(found)


async def _all(calls: Iterable[Awaitable[_Answer]]) -> list[_Answer]:
    try:
        return await asyncio.gather(*calls)
    except ConnectionLossError as error:
        raise CoordinatorNotAvailableError(str(error)) from error


def _named(group_id: str) -> str:
    """A group's id that can be one name in a path.  Raises InvalidGroupIdError."""
    if group_id in ("", ".", "..") or "/" in group_id or not group_id.isprintable():
        raise InvalidGroupIdError(f"{group_id!r} cannot be the name of a group in ZooKeeper")
    return group_id


def _text(data: bytes | None) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError:
        raise ZnodeError("no text") from None
