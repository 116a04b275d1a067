"""Makes requests of Kafka's protocol as a viewer: to this broker by a connection inside the process, whose session is
the viewer's, to others by TCP, where the viewer logs in with the name and the password that it has proved itself by.

So an action goes the way of a client's request: its gate, ACLs, quotas, and the audit log.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker._fast.net.connection import Connection
from kbroker._fast.net.socket_part import PairedSocket
from kbroker.administration.admin import Admin
from kbroker.cluster.client import ClientSettings, NodeClient, NodeError, UnsupportedVersionError
from kbroker.cluster.client_tcp import PairTransport
from kbroker.cluster.outbound import Outbound
from kbroker.cluster.partition_reader import PartitionReader, leader_of
from kbroker.cluster.workers.member import WORKERS_LISTENER
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import Endpoint
from kbroker.metadata.security_image import ScramKey
from kbroker.security.principal import AuthenticationState, Principal, Session
from kbroker.security.sasl.plain import PLAIN
from kbroker.security.scram import ScramMechanism
from kbroker.types import EARLIEST, LATEST, ZERO_UUID

if TYPE_CHECKING:
    from kbroker._fast.net.socket_part import SocketPart
    from kbroker.config import BrokerConfig
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import BrokerImage
    from kbroker.network.listener import Listener
    from kbroker.network.listener_security import ListenerSecurity
    from kbroker.protocol.messages import Message
    from kbroker.security.client.client_security import ClientSecurity

A = TypeVar("A")

CLIENT_ID = "kbroker-console"
SECONDS = 30.0
_PORT = 1
"""Of a viewer's address, whose port says nothing."""


class InsideSecurity:
    """See `ListenerSecurity`: a connection comes with its session."""

    authenticates = False
    first_frame_bytes = None

    def __init__(self) -> None:
        self.sessions: dict[Connection, Session] = {}

    def make_socket(self, connection: Connection) -> SocketPart:
        """Only this process connects."""
        raise RuntimeError("the console's listener has no port")

    def first_session(self, connection: Connection) -> Session | None:
        """The one that the connection was made with."""
        return self.sessions.pop(connection, None)


class Inside:
    """Makes connections inside the process; its listener with the first one.

    `name`: the inter-broker listener, whose endpoints answers about brokers contain.
    """

    def __init__(self, make_listener: Callable[[str, ListenerSecurity], Listener], name: str) -> None:
        self._make_listener = make_listener
        self._name = name
        self._security = InsideSecurity()
        self._listener: Listener | None = None

    def transport(self, loop: asyncio.AbstractEventLoop, principal: Principal, host: str) -> PairTransport:
        """Connections whose client is a principal at an address."""
        return PairTransport(loop, partial(self._accept, principal, host))

    async def _accept(self, principal: Principal, host: str, sock: socket.socket) -> object:
        if self._listener is None:
            self._listener = self._make_listener(self._name, self._security)
        listener, sessions = self._listener, self._security.sessions

        def make() -> SocketPart:
            connection = Connection(listener.endpoint)
            sessions[connection] = Session(principal, host, listener.name, AuthenticationState.AUTHENTICATED)
            return PairedSocket(connection, (host, _PORT))

        return await listener.connect(sock, make)


class ViewerClient(Admin):
    """The cluster as a viewer's client sees it."""

    def __init__(
        self, services: Services, inside: Inside, principal: Principal, host: str, login: tuple[str, str] | None
    ) -> None:
        self._services = services
        self._inside = inside
        self.principal = principal
        self._host = host
        self._login = login
        self._loop = asyncio.get_running_loop()
        self._clients: dict[int, NodeClient] = {}
        self.reader = PartitionReader(self.ask, lambda: services.metadata_cache.image)

    async def ask(self, kind: type[A], request: Message, node_id: int | None = None) -> A:
        client = self._client(self._services.node_id if node_id is None else node_id)
        try:
            return await client.ask(kind, request)
        except UnsupportedVersionError as error:
            raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        except NodeError as error:
            raise KafkaError.of(ErrorCode.NETWORK_EXCEPTION, f"there is no answer: {error}") from None
        except ValueError as error:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, str(error)) from None

    async def ask_controller(self, kind: type[A], request: Message) -> A:
        services = self._services
        return await self.ask(kind, request, services.view.node_for_changes(services.metadata_cache.image))

    async def bounds(self, topic: str, partitions: Sequence[int], isolation: int = 0) -> dict[int, tuple[int, int]]:
        """First offsets and ends of partitions."""
        first = await self.offsets(topic, partitions, EARLIEST)
        last = await self.offsets(topic, partitions, LATEST, isolation)
        return {each: (first[each], last[each]) for each in partitions}

    def leader_of(self, topic: str, partition: int) -> int:
        return leader_of(self._services.metadata_cache.image, topic, partition)

    def topic_id_of(self, name: str) -> bytes:
        image = self._services.metadata_cache.topic(name)
        return ZERO_UUID if image is None else image.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        image = self._services.metadata_cache.topic_by_id(topic_id)
        return None if image is None else image.name

    def now(self) -> float:
        return self._loop.time()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def close(self) -> None:
        """Hang up."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, node_id: int) -> NodeClient:
        known = self._clients.get(node_id)
        if known is not None:
            return known
        settings = ClientSettings(CLIENT_ID, negotiates=True, request_seconds=SECONDS)
        if node_id == self._services.node_id:
            transport = self._inside.transport(self._loop, self.principal, self._host)
            made = NodeClient(self._loop, transport, lambda: Endpoint("", 0), settings)
        else:
            endpoint, security = self._elsewhere(node_id)
            outbound = Outbound(self._loop, lambda: security)
            made = NodeClient(self._loop, outbound.transport(), lambda: endpoint, settings)
        self._clients[node_id] = made
        return made

    def _elsewhere(self, node_id: int) -> tuple[Endpoint, ClientSecurity | None]:
        broker = self._services.metadata_cache.image.brokers.get(node_id)
        if broker is None:
            raise KafkaError.of(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not there")
        scram = self._services.metadata_cache.image.security.scram
        known = [each.sasl_name for each in ScramMechanism if ScramKey(self.principal.name, each) in scram]
        return way_to(self._services.config, broker, self._login, (*known, PLAIN))


def way_to(
    config: BrokerConfig, broker: BrokerImage, login: tuple[str, str] | None, mechanisms: Sequence[str]
) -> tuple[Endpoint, ClientSecurity | None]:
    """Where another broker is reached by a viewer, and with what security.  KafkaError where it is not.

    `mechanisms`: those that the viewer can log in with, best first.
    """
    for listener in config.listeners:
        endpoint = _endpoint_on(broker, listener.name)
        if endpoint is None:
            continue
        security = _security_of(config, listener.name, listener.protocol, login, mechanisms)
        if security is not None:
            return endpoint, None if security.is_plain else security
    raise KafkaError.of(
        ErrorCode.ILLEGAL_SASL_STATE,
        f"broker {broker.node_id} has to be asked, where "
        + (
            "no listener takes the viewer's name and password: SCRAM or PLAIN"
            if login is not None
            else "only users with a name and a password can log in: use the console of that broker, or basic in "
            "kbroker.metrics.authentication"
        ),
    )


def _endpoint_on(broker: BrokerImage, listener: str) -> Endpoint | None:
    endpoint, near = broker.endpoints.get(listener), broker.endpoints.get(WORKERS_LISTENER)
    if endpoint is not None and near is not None and not broker.advertised:
        return Endpoint(near.host, endpoint.port)
    return endpoint


def _security_of(
    config: BrokerConfig, listener: str, protocol: str, login: tuple[str, str] | None, mechanisms: Sequence[str]
) -> ClientSecurity | None:
    """None where a viewer cannot be a client of the listener under its own name."""
    from kbroker.security.client.client_security import ClientSecurity, ClientSecurityError
    from kbroker.security.client.java_settings import security_of
    from kbroker.security.protocols import has_sasl, has_tls
    from kbroker.security.sasl.mechanism import Login

    if has_sasl(protocol) != (login is not None):
        return None
    if login is None and has_tls(protocol) and config.for_listener(listener, "ssl.client.auth") != "none":
        return None  # It would have the broker's own certificate, and its rights.
    carrier = "SSL" if has_tls(protocol) else "PLAINTEXT"

    def get(name: str) -> str | None:
        value = config.for_listener(listener, name)
        return None if value is None else ",".join(map(str, value)) if isinstance(value, list) else str(value)

    try:
        found = security_of(get, carrier, "") if carrier == "SSL" else ClientSecurity()
    except ClientSecurityError:
        return None
    if login is None:
        return found
    enabled = config.for_listener(listener, "sasl.enabled.mechanisms")
    offered = [str(name).upper() for name in enabled] if isinstance(enabled, list) else []
    mechanism = next((each for each in mechanisms if each in offered), None)
    if mechanism is None:
        return None
    return replace(found, protocol=protocol, mechanism=mechanism, login=Login(*login))
