"""What an HTTP request and its answer are for those who serve one behind the metrics listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol
from urllib.parse import parse_qs

PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"
VIEWER = "/viewer"
"""The page by which a supervisor asks its worker about a viewer."""
DESCRIBE_CLUSTER = (8, 4, "kafka-cluster")
"""The operation, the kind of resource and its name, as Kafka has them (`security.authorizer`)."""

REASONS = {
    200: "OK",
    302: "Found",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Names = str
"""The names that a scrape has: this broker's own, or those under which Kafka's exporters show a broker."""
KBROKER: Names = "kbroker"
KAFKA: Names = "kafka"
KAFKA_NAMINGS = (
    "raw",
    "raw-lower",
    "raw-total",
    "flat",
    "flat-mixed",
    "plain",
    "plain-mixed",
    "bitnami",
    "cp-helm",
    "sysdig",
)
"""Those that rules of JMX exporter give (`kafka_namings`), each a choice `kafka-…`."""
SCRAPED: dict[str, Names | None] = {
    "/metrics": None,
    "/metrics/kafka": KAFKA,
    **{f"/metrics/kafka/{naming}": f"{KAFKA}-{naming}" for naming in KAFKA_NAMINGS},
    "/metrics/kbroker": KBROKER,
}
"""Paths with metrics, and the names that each has; None: those that the setting chooses."""


def asked_names(names: Names, query: str) -> Names | None:
    """The names that a scrape of `names` has with this query; None where there are none such."""
    asked = parse_qs(query).get("names", []) if names == KAFKA else []
    if not asked or asked[-1] == "strimzi":
        return names
    return f"{KAFKA}-{asked[-1]}" if asked[-1] in KAFKA_NAMINGS else None


def scraped_path(names: Names) -> str:
    """Where a scrape has these names."""
    return next(path for path, known in SCRAPED.items() if known == names)


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Viewer(Protocol):
    """The person or program that has proved who it is."""

    @property
    def principal(self) -> tuple[str, str]:
        """The kind of the principal and its name, as Kafka has them."""

    @property
    def login(self) -> tuple[str, str] | None:
        """The name and the password that it has proved itself by; None where it was something else."""

    def may(self, operation: int, kind: int, name: str) -> bool:
        """Whether it may do that to a resource; numbers are Kafka's."""

    def may_any(self, operation: int, kind: int) -> bool:
        """Whether it may do that to at least one resource of a kind."""


class Access(Protocol):
    """Who may look at what the metrics listener shows, besides the probes."""

    challenge: str
    """How to prove who one is, as WWW-Authenticate says it; empty where nothing helps."""
    refusal: str
    """The sentence for a request that proves nothing."""

    async def viewer(self, authorization: str, host: str) -> Viewer | None:
        """The viewer that the header Authorization proves, at an address; None where it proves nothing."""


class Request(NamedTuple):
    """A parsed head.  Headers that were not sent are empty."""

    method: str
    path: str
    query: str
    accept: str
    gzip: bool
    keep_alive: bool
    host: str = ""
    origin: str = ""
    fetch_site: str = ""
    """Sec-Fetch-Site: where a browser's request comes from, `same-origin`, `same-site`, `cross-site` or `none`."""
    known_tag: str = ""
    """If-None-Match."""
    authorization: str = ""
    viewer: Viewer | None = None
    """None where the listener takes no proofs."""
    peer: str = ""
    """The client's address; empty where its socket has none."""
    content_type: str = ""
    console: str = ""
    """X-Kbroker-Console: what no page of another origin can send without being asked first."""
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"  # `authorization` is a secret.

    @property
    def is_read(self) -> bool:
        """Whether it asks for no change."""
        return self.method in ("GET", "HEAD")


class Answer(NamedTuple):
    """`headers` are added to those of every answer, and stand for one of the same name."""

    status: int
    body: bytes
    content_type: str = PLAIN
    headers: Mapping[str, str] = _NO_HEADERS
    gzipped: bytes | None = None
    """The body compressed, where it is at hand."""


def not_found(others: Sequence[str]) -> Answer:
    """What there is, but for most of the namings; `others`: pages and sites."""
    known = [path for path in SCRAPED if path == "/metrics/kafka/raw" or path.count("/") < 3]
    known += ["/healthz", *(f"/{each}" for each in others)]
    return Answer(404, f"not found; there are {', '.join(known)} and /readyz\n".encode())


NOT_ALLOWED = Answer(403, b"this takes DESCRIBE on the cluster\n")


def unproved(access: Access) -> Answer:
    """The answer to a request without a proof."""
    headers = {"WWW-Authenticate": access.challenge} if access.challenge else {}
    return Answer(401, f"{access.refusal}\n".encode(), headers=headers)


Page = Callable[[Sequence[str]], Awaitable[tuple[int, object]]]
"""Answers with a status and a value, which becomes JSON; it is given the parts of the path behind its name."""
Pages = Mapping[str, Page]

Site = Callable[[Request], Awaitable[Answer]]
"""Answers everything under its name."""
Sites = Mapping[str, Site]
BodyLimits = Mapping[str, Callable[[str], int]]
"""How many bytes the body of a request to a site may have, by its path."""
