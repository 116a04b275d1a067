"""The console's door: files under `/console/`, JSON under `/console/api/`.

An answer in JSON is a value, or `{"error": "..."}` with a status: 400 for a parameter, 403 for what is not shown or not
allowed, 404 for what is not there, 409 for what has changed since it was shown, 503 while the broker is not ready.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from kbroker.console import guard
from kbroker.console.brokers import brokers
from kbroker.console.clients import clients
from kbroker.console.clusters import cluster, clusters
from kbroker.console.download import Download, download
from kbroker.console.groups import group, groups
from kbroker.console.heads import heads
from kbroker.console.links import Link, links_of
from kbroker.console.manage.change_requests import LARGE, PERFORM, PLAN, ChangeRequests
from kbroker.console.messages import ends, messages
from kbroker.console.overview import overview, own_overview, past
from kbroker.console.parameters import BadParameterError, NotShownError, NotThereError, Parameters
from kbroker.console.quorum import quorum
from kbroker.console.rights import allowed, hidden_pages, rights
from kbroker.console.schemas.subjects import schema, subjects
from kbroker.console.security import acls, quotas, users
from kbroker.console.settings import settings
from kbroker.console.static_files import START, StaticFile, read_static_files
from kbroker.console.statistics import statistics
from kbroker.console.topics import partition, topic, topics
from kbroker.console.transactions import transactions
from kbroker.console.why import why
from kbroker.errors import KafkaError
from kbroker.host.container import gateways
from kbroker.metrics.http_guard import refusal
from kbroker.metrics.http_messages import JSON, Answer, Request
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind
from kbroker.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from kbroker.console.parts import ConsoleParts, Endpoint

ENDPOINTS: Mapping[str, Endpoint] = {
    "overview": overview,
    "past": past,
    "own": own_overview,
    "rights": rights,
    "topics": topics,
    "topic": topic,
    "partition": partition,
    "messages": messages,
    "ends": ends,
    "heads": heads,
    "download": download,
    "statistics": statistics,
    "groups": groups,
    "group": group,
    "clients": clients,
    "transactions": transactions,
    "settings": settings,
    "brokers": brokers,
    "quorum": quorum,
    "cluster": cluster,
    "clusters": clusters,
    "why": why,
    "schemas": subjects,
    "schema": schema,
    "users": users,
    "acls": acls,
    "quotas": quotas,
}


ME = "me"
CHANGES = (PLAN, PERFORM, f"{PLAN}/{LARGE}", f"{PERFORM}/{LARGE}")
OF_THE_DOOR = (ME, *CHANGES)


@dataclass(frozen=True, slots=True)
class Me:
    """Who looks, at what, and whether they may change it: GET /console/api/me.  `rights`: what they may do to the
    cluster; `hidden_pages`: what they would be refused; `may_create_topics`: some or all."""

    principal: str
    may_manage: bool
    why_not: str
    node_id: int
    version: str
    cluster_id: str
    links: Sequence[Link]
    rights: Sequence[str]
    hidden_pages: Sequence[str]
    may_create_topics: bool


class ConsoleSite:
    """Answers requests under `/NAME`.  `hosts`: names that lead here, besides `localhost`.  `for_this_machine`: records
    are for its viewers alone, though the listener is reached from elsewhere (`guard.why_not_to`)."""

    def __init__(
        self,
        name: str,
        parts: ConsoleParts,
        hosts: Collection[str],
        door: ChangeRequests,
        *,
        for_this_machine: bool = False,
    ) -> None:
        self._door = door
        self._root = f"/{name}"
        self._parts = parts
        self._hosts = hosts
        self._for_this_machine = for_this_machine
        self._files: dict[str, StaticFile] | None = None

    async def __call__(self, request: Request) -> Answer:
        refused = refusal(request.host, self._hosts)
        if refused is not None:
            return _error(421, refused)
        path = unquote(request.path).removeprefix(self._root)
        if not path:
            return Answer(302, b"", headers={"Location": f"{self._root}/"})
        if path.startswith("/api/"):
            if guard.foreign(request):
                return _error(403, "a page of another origin may not ask")
            return await self._api(path.removeprefix("/api/"), request)
        if not request.is_read:
            return _error(405, "files are read")
        return await self._file(path.removeprefix("/") or START, request.known_tag)

    async def _file(self, name: str, known_tag: str) -> Answer:
        if self._files is None:
            self._files = await asyncio.get_running_loop().run_in_executor(None, read_static_files)
        file = self._files.get(name)
        if file is None:
            return _error(404, f"the console has no file {name}")
        headers = {**guard.SECURITY_HEADERS, "ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if known_tag == file.tag:
            return Answer(304, b"", file.content_type, headers)
        return Answer(200, file.body, file.content_type, headers, file.gzipped)

    async def _api(self, name: str, request: Request) -> Answer:
        endpoint = ENDPOINTS.get(name)
        if endpoint is None and name not in OF_THE_DOOR:
            return _error(404, f"the console has no {name}; there are {', '.join((*ENDPOINTS, *OF_THE_DOOR))}")
        if not self._parts.readiness.ready:
            return _error(503, f"the broker is {self._parts.readiness.text}")
        if name == ME:
            return Answer(200, to_json(self._me(request)), JSON, guard.SECURITY_HEADERS)
        if endpoint is None:
            return await self._change(name, request)
        if not request.is_read:
            return _error(405, f"{name} is read")
        why_not = guard.why_not_to(request, gateways()) if self._for_this_machine else ""
        parts = self._parts.seen_by(request.viewer, request.peer, why_not)
        try:
            value = await endpoint(parts, Parameters(request.query))
            return await asyncio.get_running_loop().run_in_executor(None, lambda: _answer(value()))
        except BadParameterError as error:
            return _error(400, str(error))
        except NotThereError as error:
            return _error(404, str(error))
        except NotShownError as error:
            return _error(403, str(error))
        except (KafkaError, OSError) as error:
            return _error(503, f"this cannot be said just now: {error}")
        finally:
            parts.close()

    def _me(self, request: Request) -> Me:
        kind, name = ANONYMOUS if request.viewer is None else request.viewer.principal
        why_not = self._door.why_not(request)
        config, services = self._parts.services.config, self._parts.services
        links = links_of(config.get("kbroker.console.links"))
        parts = self._parts.seen_by(request.viewer, request.peer)
        of_cluster = allowed(parts, ResourceKind.CLUSTER, CLUSTER_NAME)
        may_create = Operation.CREATE.name in of_cluster or parts.may_any(Operation.CREATE, ResourceKind.TOPIC)
        return Me(
            f"{kind}:{name}",
            not why_not,
            why_not,
            services.node_id,
            self._parts.sources.version,
            services.metadata_cache.image.cluster_id,
            links,
            of_cluster,
            hidden_pages(parts),
            may_create,
        )

    async def _change(self, name: str, request: Request) -> Answer:
        if request.method != "POST":
            return _error(405, f"{name} takes POST")
        status, value = await self._door.ask(name, request)
        body = await asyncio.get_running_loop().run_in_executor(None, in_pieces, value)
        return Answer(status, body, JSON, guard.SECURITY_HEADERS)


def _answer(value: object) -> Answer:
    if isinstance(value, Download):
        name = quote(value.name, safe="")
        headers = {**guard.SECURITY_HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Answer(200, value.body, value.content_type, {**headers, "X-More": value.more})
    return Answer(200, to_json(value), JSON, guard.SECURITY_HEADERS)


def to_json(value: object) -> bytes:
    """A value of dataclasses, mappings, sequences and plain values as JSON."""
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def in_pieces(value: object) -> bytes:
    """The same where there may be megabytes, for a thread: the loop goes on between two values."""
    return "".join(json.JSONEncoder(default=_plain, separators=(",", ":")).iterencode(value)).encode()


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} does not become JSON")


def _error(status: int, text: str) -> Answer:
    return Answer(status, to_json({"error": text}), JSON, guard.SECURITY_HEADERS)
