"""A follower's incremental fetch session with one leader (KIP-227): what a request has to name; pure.

    full         id 0, epoch 0: all partitions; the leader may give the session an id
    incremental  id n, epoch 1, 2, …: partitions that are new or whose values have changed, and those to forget

An error of the session, or a lost connection, begins it anew.  A leader that never gives an id gets full requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbroker._fast.base.build_facts import CHECKED
from kbroker.types import ZERO_UUID, LeaderEpoch, Offset

NO_SESSION = 0
INITIAL_EPOCH = 0
MAX_EPOCH = 0x7FFFFFFF


class Ask(NamedTuple):
    """One partition of a fetch, as the follower stands by now."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: LeaderEpoch
    log_start_offset: Offset
    max_bytes: int


Key = tuple[str, bytes, int]


class FetchNames(NamedTuple):
    """What a request names: the partitions to send, and those that the session is to forget."""

    session_id: int
    epoch: int
    sent: list[Ask]
    forgotten: list[Key]


class FollowerSession:
    """See the module.  `want` and `drop` between requests, `next` for a request, then `answered` or `reset`.

    A wanted partition stays wanted until it is dropped; the cost of a request is in proportion to the changes since the
    last one.
    """

    __slots__ = ("_changed", "_epoch", "_id", "_known", "_nameless", "_wanted")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[Key, Ask] = {}
        self._known: dict[Key, Ask] = {}
        self._changed: dict[Key, None] = {}
        self._nameless = 0

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def all_have_ids(self) -> bool:
        """Whether the topics of all wanted partitions have ids."""
        return not self._nameless

    def want(self, key: Key, ask: Ask) -> None:
        """Ask for a partition like this from now on."""
        if key not in self._wanted and key[1] == ZERO_UUID:
            self._nameless += 1
        self._wanted[key] = ask
        self._changed[key] = None

    def drop(self, key: Key) -> None:
        """Ask for it no longer, if it was."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None
            if key[1] == ZERO_UUID:
                self._nameless -= 1

    def next(self) -> FetchNames:
        """What the next request has to name, so that the leader's session holds exactly the wanted partitions."""
        changed, self._changed = self._changed, {}
        if self._id == NO_SESSION:
            self._known = dict(self._wanted)
            return FetchNames(NO_SESSION, INITIAL_EPOCH, list(self._known.values()), [])
        sent: list[Ask] = []
        forgotten: list[Key] = []
        for key in changed:
            ask, known = self._wanted.get(key), self._known.get(key)
            if ask is not None:
                if ask != known:
                    self._known[key] = ask
                    sent.append(ask)
            elif known is not None:
                del self._known[key]
                forgotten.append(key)
        if CHECKED:
            self.check_invariants()
        return FetchNames(self._id, self._epoch, sent, forgotten)

    def check_invariants(self) -> None:
        """Raises AssertionError unless the leader's session has what is wanted, once it has got the next request."""
        assert self._known == self._wanted, (self._known, self._wanted)
        assert self._nameless == sum(topic_id == ZERO_UUID for _, topic_id, _ in self._wanted), self._nameless
        assert (self._id == NO_SESSION) == (self._epoch == INITIAL_EPOCH), (self._id, self._epoch)

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
        """All that the last request asked for, including the partitions that it did not have to name."""
        return self._known
