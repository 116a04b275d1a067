"""A cluster as a client sees it: bootstrap, partition leaders, one connection per broker, and retries.

    with Cluster("127.0.0.1:9092") as cluster:
        topics = cluster.describe(["orders"])         # TopicUnknownError with what to do
        connection = cluster.leader("orders", 0)      # connects, or gives the connection that is there

A transient failure (a broker restarts, a leader moves) raises one of `PASSING` or a retriable `BrokerAnsweredError`.  A
caller that retries uses `Patience`:

    patience = cluster.patience("reading orders-0")
    while True:
        try:
            return ask(cluster.leader("orders", 0))
        except PASSING as error:
            patience.again(error)                     # waits, or raises RetriesExhaustedError when the time is over
            cluster.forget("orders")                  # asks for the leader anew
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbroker.backoff import ExponentialBackoff
from kbroker.client.address import parse_bootstrap
from kbroker.client.closing import Closing
from kbroker.client.connection import (
    CONNECT_TIMEOUT_S,
    DEFAULT_CLIENT_ID,
    RECEIVE_BUFFER_BYTES,
    REQUEST_TIMEOUT_S,
    Connection,
)
from kbroker.client.errors import (
    PASSING,
    BrokerAnsweredError,
    BrokerUnreachableError,
    ClientError,
    RetriesExhaustedError,
    TopicUnknownError,
)
from kbroker.errors import ErrorCode
from kbroker.nearest import did_you_mean
from kbroker.protocol.api import ApiKey
from kbroker.schemas import request_message
from kbroker.security.client.client_security import NO_SECURITY, ClientSecurity

NO_TOPIC_ID = bytes(16)
# Below version 4 a Metadata request makes the broker create the topics that it names.
_METADATA_MIN_VERSION = 4


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """A client's limits for retries, in seconds, and its client id.

    `patience_s` bounds everything that is retried.  Before any broker has answered, `first_patience_s` is the limit: 0
    in a planner, where a wrong address is likelier than a restart, and more in executors, where the address has proved
    right.
    """

    client_id: str = DEFAULT_CLIENT_ID
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    request_timeout_s: float = REQUEST_TIMEOUT_S
    patience_s: float = 60.0
    first_patience_s: float = 0.0
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES
    security: ClientSecurity = NO_SECURITY

    def connect(self, host: str, port: int) -> Connection:
        """A connection to one broker: the one place where the wire client makes them."""
        return Connection(
            host,
            port,
            client_id=self.client_id,
            connect_timeout_s=self.connect_timeout_s,
            request_timeout_s=self.request_timeout_s,
            receive_buffer_bytes=self.receive_buffer_bytes,
            security=self.security,
        )


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's leader: node -1 while there is none."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its id (all zero from brokers before 2.8) and its partitions by number."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)


class Patience:
    """Waits between tries, longer each time, until the time without progress is over."""

    def __init__(self, what: str, seconds: float, backoff_s: float, backoff_max_s: float) -> None:
        self.what = what
        self.seconds = seconds
        self._backoff = ExponentialBackoff(backoff_s, backoff_max_s)
        self.progressed()

    def progressed(self) -> None:
        """A try made progress: the time limit and the backoff start anew."""
        self._deadline = time.monotonic() + self.seconds
        self._attempts = 0

    @property
    def left_s(self) -> float:
        """Seconds until it ends."""
        return self._deadline - time.monotonic()

    def again(self, error: Exception) -> None:
        """Waits before the next try.  RetriesExhaustedError, caused by `error`, when there is no time for one."""
        wait_s = self._backoff.backoff(self._attempts)
        if self.left_s <= wait_s:
            raise RetriesExhaustedError(
                f"{self.what}: gave up after {self.seconds:g} s without progress: {error}"
            ) from error
        time.sleep(wait_s)
        self._attempts += 1


class Cluster(Closing):
    """See the module's text.  `bootstrap` is `host:port[,host:port…]`."""

    def __init__(self, bootstrap: str, settings: ClientSettings | None = None) -> None:
        self.bootstrap = bootstrap
        self.settings = settings or ClientSettings()
        self._addresses = parse_bootstrap(bootstrap)
        self._nodes: dict[int, tuple[str, int]] = {}
        self._cluster_id: str | None = None
        self._controller_id = -1
        self._topics: dict[str, TopicInfo] = {}
        self._connections: dict[tuple[str, int], Connection] = {}

    def patience(self, what: str, seconds: float | None = None) -> Patience:
        """How long to try again; `seconds` instead of the setting's."""
        settings = self.settings
        seconds = settings.patience_s if seconds is None else seconds
        return Patience(what, seconds, settings.retry_backoff_s, settings.retry_backoff_max_s)

    def any(self) -> Connection:
        """A connection to some broker.  BrokerUnreachableError says what was wrong with each address."""
        known = [*self._addresses, *(at for at in self._nodes.values() if at not in self._addresses)]
        for address in known:
            connection = self._connections.get(address)
            if connection is not None and not connection.closed:
                return connection
        failures = []
        for address in known:
            try:
                return self._connect(address)
            except PASSING as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise BrokerUnreachableError(f"no broker of {self.bootstrap} answers: {'; '.join(map(str, failures))}")

    def describe(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """These topics as they are now.  TopicUnknownError for one that does not exist."""
        found = self._refresh(names)
        missing = [name for name in names if name not in found]
        if missing:
            near = did_you_mean(missing[0], self.list_topics()) if len(missing) == 1 else ""
            raise self.unknown(", ".join(missing), near)
        return found

    def find(self, name: str, *, create: bool) -> TopicInfo | None:
        """One topic as it is now; None for one that does not exist.  `create` lets a broker that makes topics when
        they are asked for make it, which may not be done when it answers.  TopicUnknownError for what cannot be a name.
        """
        return self._refresh([name], create=create).get(name)

    def unknown(self, names: str, near: str = "") -> TopicUnknownError:
        """The error for topics that do not exist."""
        return TopicUnknownError(
            f"topic {names} does not exist at {self.bootstrap}: check the name, or create it first{near}"
        )

    def list_topics(self) -> dict[str, TopicInfo]:
        """All topics of the cluster, internal ones too."""
        return self._refresh(None)

    def leader(self, topic: str, partition: int) -> Connection:
        """A connection to the partition's leader.  A retriable BrokerAnsweredError while it has none."""
        info = self.topic(topic).partitions.get(partition)
        if info is None:
            raise TopicUnknownError(
                f"topic {topic} has no partition {partition}: it has {len(self.topic(topic).partitions)}"
            )
        if info.leader_id not in self._nodes:
            raise BrokerAnsweredError(ErrorCode.LEADER_NOT_AVAILABLE, f"finding the leader of {topic}-{partition}")
        return self.node(info.leader_id)

    def topic(self, name: str) -> TopicInfo:
        """A topic as last seen, asked for when it was never seen."""
        if name not in self._topics:
            self.describe([name])
        return self._topics[name]

    def node(self, node_id: int) -> Connection:
        """A connection to a broker by its id."""
        address = self._nodes[node_id]
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = self._connect(address)
        return connection

    def nodes(self) -> list[int]:
        """The ids of all brokers, as the metadata say."""
        if not self._nodes:
            self._refresh(())
        return sorted(self._nodes)

    def cluster_id(self) -> str | None:
        """The cluster's id; None where the brokers have none."""
        self._refresh(())
        return self._cluster_id

    def controller(self) -> int | None:
        """The id of the controller, or of a broker that asks it; None where there is none."""
        self._refresh(())
        return self._controller_id if self._controller_id in self._nodes else None

    def forget(self, *topics: str) -> None:
        """Leaders of these topics (all without any) are asked for anew at the next use."""
        for name in topics or tuple(self._topics):
            self._topics.pop(name, None)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _connect(self, address: tuple[str, int]) -> Connection:
        connection = self._connections[address] = self.settings.connect(*address)
        return connection

    def _refresh(self, names: Sequence[str] | None, *, create: bool = False) -> dict[str, TopicInfo]:
        seconds = self.settings.patience_s if self._nodes else self.settings.first_patience_s
        patience = self.patience(f"asking {self.bootstrap} for its topics", seconds)
        while True:
            try:
                return self._ask(names, create)
            except PASSING as error:
                if not seconds:
                    raise
                patience.again(error)
            except BrokerAnsweredError as error:
                if not error.retriable:
                    raise
                patience.again(error)

    def _ask(self, names: Sequence[str] | None, create: bool) -> dict[str, TopicInfo]:
        request_class = request_message(ApiKey.METADATA)
        connection = self.any()
        version = connection.version_of(ApiKey.METADATA)
        if version < _METADATA_MIN_VERSION:
            raise ClientError(f"the broker at {connection.address} is older than Kafka 1.0: it is not supported")
        wanted = None if names is None else [request_class.MetadataRequestTopic(name=name) for name in names]
        answer = connection.send(request_class(topics=wanted, allow_auto_topic_creation=create), version=version)
        self._nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        self._cluster_id, self._controller_id = answer.cluster_id, answer.controller_id
        found = dict(self._read_topics(answer.topics))
        self._topics.update(found)
        return found

    def _read_topics(self, topics: Iterable[Any]) -> Iterable[tuple[str, TopicInfo]]:
        for topic in topics:
            code = topic.error_code
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise TopicUnknownError(f"{topic.name!r} cannot be the name of a topic")
            if code:
                raise BrokerAnsweredError(code, f"asking {self.bootstrap} for topic {topic.name}")
            partitions = {
                row.partition_index: PartitionInfo(row.leader_id, row.leader_epoch)
                for row in sorted(topic.partitions, key=lambda row: int(row.partition_index))
            }
            yield topic.name, TopicInfo(topic.name, topic.topic_id, topic.is_internal, partitions)
