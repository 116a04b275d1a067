"""Steps of a start that use ZooKeeper: when the connection is lost, the start waits for it and repeats the step."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from kbroker.cluster.zookeeper.session import ConnectionLossError, ZooKeeper

if TYPE_CHECKING:
    from kbroker.cluster.zookeeper.settings import ZooKeeperSettings

logger = logging.getLogger("kbroker.cluster")

_Value = TypeVar("_Value")


async def through_losses(
    zookeeper: ZooKeeper, settings: ZooKeeperSettings, step: Callable[[], Awaitable[_Value]]
) -> _Value:
    """Runs a step that may be repeated.  It is repeated after every loss of the connection, if the connection comes
    back within `zookeeper.connection.timeout.ms`.  ConnectionLossError where it does not."""
    while True:
        try:
            return await step()
        except ConnectionLossError as error:
            seconds = settings.connection_timeout_ms / 1000
            logger.warning(
                "the connection to ZooKeeper at %s was lost during the start; waiting %g s for it",
                settings.connect,
                seconds,
            )
            try:
                async with asyncio.timeout(seconds):
                    await zookeeper.connected()
            except TimeoutError:
                # Once more: this process may have been held up for all of that time.
                with contextlib.suppress(ConnectionLossError):
                    return await step()
                raise ConnectionLossError(
                    f"the connection to ZooKeeper at {settings.connect} (zookeeper.connect) was lost during the start "
                    f"and did not come back within {seconds:g} s (zookeeper.connection.timeout.ms)"
                ) from error
