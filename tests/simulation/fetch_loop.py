"""What fetchers of all kinds do with a connection: some requests under way, until it or their budget is at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.client import Client

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection

LONG_WAIT_MS = 1000


class FetchLoop(Client):
    """`requests` is the budget, `depth` how many of them are under way at most, `max_wait_ms` what each asks for."""

    is_reader = True
    requests: int
    depth: int
    max_wait_ms: int

    async def _talk(self, connection: ModelConnection) -> None:
        rng = self.rng
        while not connection.gone and not connection.end.closed and (self.requests > 0 or connection.outstanding):
            while self.requests > 0 and len(connection.outstanding) < self.depth:
                self.requests -= 1
                self._fetch(connection)
            connection.flush()
            self._meanwhile(connection)
            if rng.random() < self.world.scale.aborts:
                connection.abort()
            if connection.outstanding and not self._gives_up(connection):
                await connection.change()
            await self.pause()
        if not connection.gone:
            connection.finish(rng)

    def _fetch(self, connection: ModelConnection) -> None:
        """Send one request."""
        raise NotImplementedError

    def _meanwhile(self, connection: ModelConnection) -> None:
        """Requests have been sent."""

    def _gives_up(self, connection: ModelConnection) -> bool:
        """Whether it hangs up: nothing comes any more that would be worth a long wait."""
        if not self.world.writers_done:
            return False
        self.requests = 0
        # One for which there is something is to be woken, though no more comes.
        if self.max_wait_ms > LONG_WAIT_MS and not connection.has_late():
            connection.abort()
        return connection.end.closed
