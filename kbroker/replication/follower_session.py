"""A follower's incremental fetch session with one leader (KIP-227): what a request has to name; pure.

    full         id 0, epoch 0: all partitions; the leader may give the session an id
    incremental  id n, epoch 1, 2, …: partitions that are new or whose values have changed, and those to forget

An error of the session, or a lost connection, begins it anew.  A leader that never gives an id gets full requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NO_SESSION = 0
INITIAL_EPOCH = 0
MAX_EPOCH = 0x7FFFFFFF


class Ask(NamedTuple):
    """One partition of a fetch, as the follower stands by now."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int
    max_bytes: int


Key = tuple[str, bytes, int]


class FetchNames(NamedTuple):
    """What a request names: the partitions to send, and those that the session is to forget."""

    session_id: int
    epoch: int
    sent: list[Ask]
    forgotten: list[Key]


class FollowerSession:
    """See the module.  `next` for a request, then `answered` or `reset`."""

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[Key, Ask] = {}

    def next(self, wanted: Mapping[Key, Ask]) -> FetchNames:
        """What the next request names for the session to hold exactly `wanted`."""
        if self._id == NO_SESSION:
            self._known = dict(wanted)
            return FetchNames(NO_SESSION, INITIAL_EPOCH, list(wanted.values()), [])
        known = self._known
        # Most are the very same.
        sent = [ask for key, ask in wanted.items() if (old := known.get(key)) is not ask and old != ask]
        forgotten = [key for key in self._known if key not in wanted]
        self._known = dict(wanted)
        return FetchNames(self._id, self._epoch, sent, forgotten)

    def answered(self, session_id: int) -> None:
        """The leader has answered, without an error of the session."""
        if session_id == NO_SESSION:
            self.reset()
        elif session_id != self._id:
            self._id = session_id
            self._epoch = 1
        else:
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """Begin anew."""
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known = {}

    @property
    def known(self) -> Mapping[Key, Ask]:
        """What the last request asked for, the partitions included that it did not have to name."""
        return self._known
