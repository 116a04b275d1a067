"""Notifications below one znode: a change makes a sequential znode that names it, and all watch.

They are left for 15 minutes, so that each broker sees them, and then taken away by any.  What has changed is read again
by each broker, so several notifications of one thing count once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kbroker.cluster.zookeeper.reader import ZnodeReader
from kbroker.cluster.zookeeper.session import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionState,
    ZooKeeper,
    ZooKeeperError,
    ensure_path,
)
from kbroker.outage import Outage

logger = logging.getLogger("kbroker.cluster")

KEPT_MS = 15 * 60 * 1000
RETRY_SECONDS = 1.0
ATTEMPTS = 3
PATIENCE_SECONDS = 6.0
"""How long a notification waits for a connection before it is tried again."""
_Named = TypeVar("_Named", bound=Hashable)


class Notifications(Generic[_Named]):
    """`decode` gives what a notification in `folder` names, `reload` reads that again.  `what`: for the log.

    `reload_all` reads everything again, with a new session: behind an old one notifications may have come and gone, and
    the broker that changed something may have lost its connection before its notification.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        reader: ZnodeReader,
        folder: str,
        decode: Callable[[bytes | None], _Named],
        reload: Callable[[_Named], Awaitable[None]],
        what: str,
        reload_all: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._reader = reader
        self._folder = folder
        self._decode = decode
        self._reload = reload
        self._what = what
        self._reload_all = reload_all
        self._has_missed = False
        self._changed = asyncio.Event()
        self._seen = ""
        self._outage = Outage(logger, logging.ERROR)
        zookeeper.subscribe(self._on_session)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._has_missed = self._reload_all is not None
        elif state is SessionState.CONNECTED:
            self._changed.set()

    async def mark(self) -> None:
        """What is notified of by now is read after this, so it need not be read again."""
        self._seen = max([*await self._reader.children(self._folder), self._seen, " "])

    async def run(self) -> None:
        """Follow notifications; after a lost connection those that came meanwhile, too."""
        while True:
            self._changed.clear()
            try:
                await self._look()
            except ConnectionLossError:
                await self._zookeeper.connected()
                continue
            except ZooKeeperError as error:
                self._outage.failed("changes of %s can't be followed: %s", self._what, error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._outage.over("changes of %s are followed again", self._what)
            await self._changed.wait()

    async def _look(self) -> None:
        names = await self._zookeeper.children(self._folder, self._changed.set)
        is_first = not self._seen
        named: dict[_Named, None] = {}
        made: dict[str, int] = {}
        for name in names:
            path = f"{self._folder}/{name}"
            found = await self._reader.read(path, self._decode) if name > self._seen or is_first else None
            if found is not None and not is_first:
                named[found[0]] = None
            stat = found[1] if found is not None else await self._zookeeper.exists(path)
            if stat is not None:
                made[path] = stat.ctime_ms
        # By ZooKeeper's clock alone: a broker's may be a day ahead, and others have not seen the newest ones yet.
        newest = max(made.values(), default=0)
        for path in [path for path, ctime_ms in made.items() if 0 < ctime_ms < newest - KEPT_MS]:
            await self._purge(path)
        if self._has_missed and self._reload_all is not None:
            self._has_missed = False
            try:
                await self._reload_all()
            except BaseException:
                self._has_missed = True
                raise
        else:
            for each in named:
                await self._reload(each)
        self._seen = max([*names, self._seen, " "])

    async def _purge(self, path: str) -> None:
        try:
            await self._zookeeper.delete(path)
        except NoNodeError:
            return

    async def tell(self, prefix: str, content: bytes) -> None:
        """Notify all brokers.

        The change itself has been written, so a lost connection does not end this: a second notification costs nothing.
        ConnectionLossError where ZooKeeper does not come back.
        """
        for left in reversed(range(ATTEMPTS)):
            try:
                await self._tell(prefix, content)
            except ConnectionLossError:
                if not left:
                    raise
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._zookeeper.connected(), PATIENCE_SECONDS)
            else:
                return

    async def _tell(self, prefix: str, content: bytes) -> None:
        try:
            await ensure_path(self._zookeeper, self._folder)
        except NodeExistsError:
            pass
        await self._zookeeper.create(f"{self._folder}/{prefix}", content, sequential=True)
