"""The one metrics page of a host: what its workers' own pages say, fetched from each when it is asked for.

- /metrics: the samples of all workers, and how the supervisor sees them.
- /readyz: 200 when all workers are ready, with the problems of each.
- /logs: the pages of all in one; of a partition that of the first worker that has it.
- /console/: the consoles of the workers (`worker_consoles`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from kbroker.metrics.http_messages import DESCRIBE_CLUSTER, KBROKER, VIEWER, Access, Names, scraped_path
from kbroker.metrics.http_server import MetricsServer
from kbroker.metrics.listener_address import is_encrypted, parse_listener
from kbroker.outage import Outages
from kbroker.supervision.metrics_text import END, merged
from kbroker.supervision.worker_consoles import WorkerConsoles
from kbroker.supervision.worker_http import Fetched, fetch
from kbroker.supervision.worker_life import WorkerLife, WorkerState

if TYPE_CHECKING:
    import ssl

    from kbroker.cluster.workers.worker_slot import WorkerSlot
    from kbroker.metrics.http_messages import BodyLimits
    from kbroker.metrics.readiness import Readiness

logger = logging.getLogger("kbroker.supervisor")

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class ClusterViewer:
    """A viewer of the whole host, as a worker judges it: all that is asked here is DESCRIBE on the cluster."""

    principal = ("", "")
    login = None

    def __init__(self, *, is_allowed: bool) -> None:
        self._is_allowed = is_allowed

    def may(self, operation: int, kind: int, name: str) -> bool:
        """See `Viewer`."""
        return self._is_allowed and (operation, kind, name) == DESCRIBE_CLUSTER

    def may_any(self, operation: int, kind: int) -> bool:
        """See `Viewer`."""
        return self._is_allowed and (operation, kind) == DESCRIBE_CLUSTER[:2]


class WorkersAccess:
    """Who may look, asked of the first worker that is ready: it knows the cluster's users and ACLs.

    `own` has the words for those who may not.
    """

    def __init__(self, own: Access, sockets: Callable[[], Sequence[str]]) -> None:
        self.challenge, self.refusal = own.challenge, own.refusal
        self._sockets = sockets
        self._outages = Outages(logger)

    async def viewer(self, authorization: str, host: str) -> ClusterViewer | None:
        """See `Access`.  No viewer may look while no worker answers."""
        for address in self._sockets():
            try:
                answer = await fetch(address, f"{VIEWER}?{quote(host, safe='')}", authorization=authorization)
            except (OSError, TimeoutError, ValueError) as error:
                self._outages.failed(address, "a worker does not say whether a viewer may look: %s", error)
                continue
            self._outages.over(address, "a worker says again whether a viewer may look")
            return None if answer.status == 401 else ClusterViewer(is_allowed=answer.status == 200)
        return None


class WorkerPages(MetricsServer):
    """`lives` and `slots` are those of the workers, by number."""

    def __init__(
        self,
        slots: Mapping[int, WorkerSlot],
        lives: Mapping[int, WorkerLife],
        readiness: Readiness,
        hosts: Collection[str] = (),
        access: Access | None = None,
        names: Names = KBROKER,
        bodies: BodyLimits | None = None,
        *,
        has_console: bool = True,
    ) -> None:
        workers = None if access is None else WorkersAccess(access, self._ready_sockets)
        super().__init__(
            None,
            readiness,
            pages={"logs": self._logs},
            names=names,
            sites={"console": WorkerConsoles(slots, lives)} if has_console else None,
            hosts=hosts,
            access=workers,
            bodies=bodies,
        )
        self._slots = slots
        self._lives = lives
        self._outages = Outages(logger)

    def _ready_sockets(self) -> list[str]:
        return [
            self._slots[number].metrics_socket
            for number, life in self._lives.items()
            if life.state is WorkerState.READY
        ]

    async def _ask_all(self, path: str, accept: str = "") -> dict[int, Fetched | None]:
        """The answers of the workers that are ready, by number; None for a worker that does not answer."""
        numbers = [number for number, life in self._lives.items() if life.state is WorkerState.READY]
        answers = await asyncio.gather(
            *(fetch(self._slots[number].metrics_socket, path, accept) for number in numbers), return_exceptions=True
        )
        found: dict[int, Fetched | None] = {}
        for number, answer in zip(numbers, answers, strict=True):
            if isinstance(answer, Fetched):
                found[number] = answer
                self._outages.over(number, "worker %d answers for pages again", number)
            else:
                self._outages.failed(number, "worker %d does not answer for %s: %s", number, path, answer)
                found[number] = None
        return found

    async def _of_all(self, path: str, accept: str = "") -> dict[int, Fetched]:
        """The answers that there are, by number."""
        asked = await self._ask_all(path, accept)
        return {number: answer for number, answer in asked.items() if answer is not None}

    async def scrape(self, names: Names, accept: str) -> tuple[bytes, str]:
        pages = await self._of_all(scraped_path(names), accept)
        content_type = next((each.content_type for each in pages.values()), _TEXT)
        text = await asyncio.get_running_loop().run_in_executor(
            None, lambda: merged({number: each.body.decode() for number, each in pages.items()})
        )
        body = text.removesuffix(f"{END}\n")
        end = text[len(body) :]
        return f"{body}{own_metrics(self._lives)}{end}".encode(), content_type

    async def look(self) -> tuple[bool, str]:
        is_ready, text = self.readiness.look()
        answers = await self._ask_all("/readyz") if self.readiness.ready else {}
        lines = [text]
        for number, answer in answers.items():
            if answer is None:
                # It has just died or hangs, which the supervisor is about to see.
                is_ready = False
                lines.append(f"worker {number} does not answer")
                continue
            said = answer.body.decode(errors="replace").strip()
            is_ready = is_ready and answer.status == 200
            if "\n" in said or answer.status != 200:
                lines += [f"worker {number}: {line}" for line in said.splitlines()]
        return is_ready, "\n".join(lines)

    async def _logs(self, parts: Sequence[str]) -> tuple[int, object]:
        answers = await self._of_all("/".join(("/logs", *(quote(part, safe="") for part in parts))))
        found = {number: json.loads(each.body) for number, each in answers.items() if each.status == 200}
        if found:
            return 200, merged_pages(found)
        if not answers:
            return 503, {"error": "no worker answers"}
        first = next(iter(answers.values()))
        return first.status, json.loads(first.body)


def merged_pages(pages: Mapping[int, Mapping[str, object]]) -> dict[str, object]:
    """One page in the words of a single broker: lists have the rows of all workers, each with its `worker`; of
    anything else there is that of the first."""
    found: dict[str, object] = {}
    for number, page in pages.items():
        for key, value in page.items():
            if isinstance(value, list):
                rows = [{**row, "worker": number} if isinstance(row, dict) else row for row in value]
                known = found.setdefault(key, [])
                assert isinstance(known, list)
                known += rows
            else:
                found.setdefault(key, value)
    return found


def own_metrics(lives: Mapping[int, WorkerLife]) -> str:
    """What the supervisor itself knows of the workers."""
    up = ((number, float(life.state is WorkerState.READY)) for number, life in lives.items())
    restarts = ((number, float(life.restart_count)) for number, life in lives.items())
    return _family("kbroker_worker_up", "gauge", "Whether the worker serves.", up) + _family(
        "kbroker_worker_restarts", "gauge", "How often the worker was started again.", restarts
    )


def _family(name: str, kind: str, words: str, rows: Iterable[tuple[int, float]]) -> str:
    samples = "".join(f'{name}{{worker="{number}"}} {value}\n' for number, value in rows)
    return f"# HELP {name} {words}\n# TYPE {name} {kind}\n{samples}"


async def start_pages(
    listener: str,
    slots: Mapping[int, WorkerSlot],
    lives: Mapping[int, WorkerLife],
    readiness: Readiness,
    hosts: Collection[str] = (),
    access: Access | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
    names: Names = KBROKER,
    bodies: BodyLimits | None = None,
    *,
    has_console: bool = True,
) -> WorkerPages | None:
    """Serve on `metrics.listener`; None where it is `none` or cannot be had."""
    address = parse_listener(listener)
    if address is None:
        return None
    server = WorkerPages(slots, lives, readiness, hosts, access, names, bodies, has_console=has_console)
    try:
        await server.listen(*address, tls() if tls is not None and is_encrypted(listener) else None)
    except OSError as error:
        logger.warning("no metrics: %s:%d can't be listened on (%s)", *address, error.strerror or error)
        return None
    return server
