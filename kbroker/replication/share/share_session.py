"""Share sessions: which partitions a member of a share group reads, remembered between its requests (KIP-932).

    epoch 0        opens a session, anew where there was one
    epoch n        goes on; the broker expects the one after the last
    epoch -1       ends it: the member's records are released

A session ends with its connection, too: its member is gone, or begins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError
from kbroker.types import Link

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 0x7FFFFFFF


class TopicIdPartition(NamedTuple):
    """A partition as requests name it."""

    topic_id: bytes
    partition: int


class ShareSession:
    """`epoch` is the one that the next request must have; `partitions` are read in their order."""

    __slots__ = ("epoch", "group_id", "link", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str, link: Link, partitions: Iterable[TopicIdPartition]) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.link = link
        self.epoch = 1
        self.partitions: dict[TopicIdPartition, None] = dict.fromkeys(partitions)

    def rotate(self, served: Iterable[TopicIdPartition]) -> None:
        """Read last next time what has had its turn."""
        for partition in served:
            if partition in self.partitions:
                del self.partitions[partition]
                self.partitions[partition] = None


class ShareSessions:
    """The sessions of a broker, `group.share.max.share.sessions` at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str, epoch: int, link: Link) -> ShareSession:
        """The session that a request goes on with or ends.  SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError.of(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if session.epoch != epoch:
                raise KafkaError.of(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.link = link
        return session

    def open(self, group_id: str, member_id: str, link: Link, partitions: Iterable[TopicIdPartition]) -> ShareSession:
        """A new session.  SHARE_SESSION_LIMIT_REACHED."""
        key = group_id, member_id
        if key not in self._sessions and len(self._sessions) >= self._limit:
            raise KafkaError.of(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(group_id, member_id, link, partitions)
        assert len(self._sessions) <= self._limit, (len(self._sessions), self._limit)
        return session

    def for_fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        link: Link,
        named: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
        *,
        acknowledges: bool,
    ) -> ShareSession:
        """The session of a fetch, opened or brought up to date.  Raises InvalidRequestError."""
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise InvalidRequestError()
            return self.open(group_id, member_id, link, named)
        session = self.get(group_id, member_id, epoch, link)
        if epoch != FINAL_EPOCH:
            session.partitions.update(dict.fromkeys(named))
            for partition in forgotten:
                session.partitions.pop(partition, None)
        return session

    def for_acknowledgement(self, group_id: str, member_id: str, epoch: int, link: Link) -> ShareSession:
        """The session of acknowledgements without a fetch: it must be open.  Raises KafkaError."""
        if epoch == INITIAL_EPOCH:
            raise KafkaError.of(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return self.get(group_id, member_id, epoch, link)

    def remove(self, session: ShareSession) -> None:
        """The session has ended."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is session:
            del self._sessions[key]

    def ended(self) -> Iterator[ShareSession]:
        """The sessions whose connection is gone."""
        for session in list(self._sessions.values()):
            if session.link.closed:
                yield session
