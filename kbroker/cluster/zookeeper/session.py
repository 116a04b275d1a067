"""A ZooKeeper session as the rest of the cluster sees it: a small asynchronous interface on the loop.

`kazoo_session` has it over the network, tests over a model in memory.  Errors are exceptions: `NoNodeError`,
`NodeExistsError`, `BadVersionError`, `NotEmptyError` say that nothing was changed; after `ConnectionLossError` and
`SessionExpiredError` the change may have happened, so read before you repeat.

A watch is a callback that is called at most once, when something may have changed: read again.  Watches are lost with
the connection; on CONNECTED read everything again.

    states      CONNECTED → SUSPENDED → CONNECTED          the same session: ephemeral nodes are still there
                CONNECTED → SUSPENDED → EXPIRED → CONNECTED   a new session: they are gone
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from kbroker.errors import KafkaError

ANY_VERSION = -1


class SessionState(Enum):
    """What has become of the connection and of the session behind it."""

    CONNECTED = auto()
    SUSPENDED = auto()
    EXPIRED = auto()
    CLOSED = auto()


class ZooKeeperError(KafkaError):
    """ZooKeeper refused or did not answer."""


class NoNodeError(ZooKeeperError):
    """The znode, or its parent, does not exist."""


class NodeExistsError(ZooKeeperError):
    """The znode exists."""


class BadVersionError(ZooKeeperError):
    """The znode was changed by others."""


class NotEmptyError(ZooKeeperError):
    """The znode has children."""


class ConnectionLossError(ZooKeeperError):
    """There is no connection; what was under way may have happened."""


class SessionExpiredError(ConnectionLossError):
    """The session is over."""


class AuthenticationError(ZooKeeperError):
    """ZooKeeper does not take the credentials, or does not allow the change."""


class Stat(NamedTuple):
    """`czxid` is the transaction that made the znode, `owner` the session of an ephemeral one, else 0.

    `ctime_ms`: when it was made, by ZooKeeper's clock; 0 where that is not known.
    """

    version: int
    czxid: int
    owner: int = 0
    ctime_ms: int = 0


class Znode(NamedTuple):
    """Content and state of a znode."""

    data: bytes | None
    stat: Stat


@dataclass(frozen=True, slots=True)
class Check:
    """That a znode has a version, part of a `multi`."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """A new znode, part of a `multi`."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """New content, part of a `multi`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """A znode that goes, part of a `multi`."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete
Watch = Callable[[], None]


class MultiError(ZooKeeperError):
    """A `multi` changed nothing: `index` is the operation that failed, `cause` its error."""

    def __init__(self, index: int, cause: ZooKeeperError) -> None:
        super().__init__(f"operation {index} failed: {cause}")
        self.index = index
        self.cause = cause


class ZooKeeper(Protocol):
    """One session after the other with a ZooKeeper ensemble."""

    @property
    def state(self) -> SessionState:
        """The newest state."""

    @property
    def session_id(self) -> int:
        """The id of the session, 0 where there is none."""

    def subscribe(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` with every new state, on the loop."""

    async def connected(self) -> None:
        """Return when there is a connection."""

    async def get(self, path: str, watch: Watch | None = None) -> Znode:
        """A znode.  `watch`: when it changes or goes."""

    async def get_each(self, paths: Sequence[str]) -> list[Znode | None]:
        """Znodes by one request, in order; None for one that does not exist.  Some hundred at a time."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """A znode's state.  `watch`: when it comes, changes or goes."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of a znode's children, sorted.  `watch`: when one comes or goes."""

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """A new znode; its path, with its number if it is sequential."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """New content of a znode."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a znode without children."""

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """All operations or, with MultiError, none.  Of a Set, the new state."""


class Session(ZooKeeper, Protocol):
    """A ZooKeeper that a process opens and closes, once each."""

    async def open(self) -> None:
        """Connect.  ConnectionLossError when the time for that is over."""

    async def close(self) -> None:
        """End the session: its ephemeral nodes go at once."""


async def ensure_path(zookeeper: ZooKeeper, path: str) -> None:
    """Make a persistent znode and its parents where they are missing, as Kafka does, without content."""
    try:
        await zookeeper.create(path)
    except NodeExistsError:
        return
    except NoNodeError:
        parent = path.rpartition("/")[0]
        if not parent:
            raise
        await ensure_path(zookeeper, parent)
        await ensure_path(zookeeper, path)


async def set_or_create(zookeeper: ZooKeeper, path: str, data: bytes) -> None:
    """Give a znode this content; it is made, with its parents, where it is missing."""
    try:
        await zookeeper.set(path, data)
    except NoNodeError:
        await ensure_path(zookeeper, path.rpartition("/")[0])
        try:
            await zookeeper.create(path, data)
        except NodeExistsError:
            await zookeeper.set(path, data)
