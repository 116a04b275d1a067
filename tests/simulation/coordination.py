"""A client's way to the coordinator of a group or of a transactional id: found, kept, and found again when it moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.client import IN_DOUBT, NOT_NOW
from tests.simulation.connection import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.connection import ModelConnection

OF_GROUP, OF_TRANSACTIONS = 0, 1
FIND_VERSIONS = (1, 2, 3, 4, 5, 6)
FIRST_FIND_OF_SEVERAL = 4
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
NOT_HERE = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS} | NOT_NOW | IN_DOUBT
"""The coordinator is another broker by now, or has yet to read what it has to know."""
SERVED_WITHIN_SECONDS = 150.0
"""Within so long there is a coordinator that serves, whatever fails meanwhile."""


class Coordinator:
    """Who coordinates a key, as far as a client knows, and the client's connection to it."""

    def __init__(self, client: Client, key: str, kind: int) -> None:
        self.key = key
        self._kind = kind
        self._client = client
        self._version = client.rng.choice(FIND_VERSIONS)
        self._connection: ModelConnection | None = None

    async def connection(self) -> ModelConnection:
        """An open connection to it, as soon as there is one."""
        client = self._client
        until = client.world.loop.time() + SERVED_WITHIN_SECONDS
        while True:
            if self._connection is not None and not (self._connection.gone or self._connection.end.closed):
                return self._connection
            self._connection = await self._find()
            if self._connection is None:
                if client.world.loop.time() > until:
                    client.judge.fail(f"{client.name}: {self.key} has had no coordinator for {SERVED_WITHIN_SECONDS} s")
                await client.try_later()

    async def ask(self, request: Any, version: int, *, allowed_seconds: float = PATIENCE_SECONDS) -> Any:
        """The answer to one request; None where the connection ended meanwhile: it may have been served."""
        connection = await self.connection()
        return await connection.answer(request, version, allowed_seconds=allowed_seconds)

    def lose(self) -> None:
        """It is not, or not any more: it is looked for anew."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.gone:
            connection.finish(self._client.rng)

    async def _find(self) -> ModelConnection | None:
        client, version = self._client, self._version
        asked = await client.connect(client.rng.choice(client.world.nodes))
        if asked is None:
            return None
        if version < FIRST_FIND_OF_SEVERAL:
            request = wire.FindCoordinatorRequest(key=self.key, key_type=self._kind)
        else:
            request = wire.FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[self.key])
        answer = await asked.answer(request, version)
        if not asked.gone:
            asked.finish(client.rng)
        if answer is None:
            return None
        found = answer if version < FIRST_FIND_OF_SEVERAL else answer.coordinators[0]
        if found.error_code != 0:
            if found.error_code not in NOT_HERE:
                client.judge.fail(f"{client.name}: {self.key} has no coordinator: {found}")
            return None
        connection = await client.connect(found.node_id)
        if connection is not None and client.world.may_lose_leaders:
            # A coordinator that is replaced amid a write cannot say whether that counts, and hangs up.
            connection.may_be_closed = True
        return connection
