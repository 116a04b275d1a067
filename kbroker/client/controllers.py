"""The controllers of a KRaft cluster as a client reaches them, at their own listener (KIP-919).

    with Controllers("controller1:9093,controller2:9093", settings) as controllers:
        answer = controllers.send(wire.DescribeQuorumResponse, wire.DescribeQuorumRequest(…))

Any of them names the active one, which is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kbroker._fast.wire.codec import EncodeError
from kbroker.client.address import parse_bootstrap
from kbroker.client.closing import Closing
from kbroker.client.errors import PASSING, BrokerUnreachableError, ClientError, UnsupportedError
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.client.cluster import ClientSettings
    from kbroker.client.connection import Connection
    from kbroker.protocol.messages import Message

A = TypeVar("A")
BROKERS, CONTROLLERS = 1, 2
"""The types of endpoints that DescribeCluster names."""


class Controllers(Closing):
    """See the module's text.  `bootstrap` is `host:port[,host:port…]`; all that asks raises ClientError, KafkaError."""

    def __init__(self, bootstrap: str, settings: ClientSettings) -> None:
        self.bootstrap = bootstrap
        self._settings = settings
        self._addresses = parse_bootstrap(bootstrap)
        self._active: Connection | None = None

    def send(self, kind: type[A], request: Message) -> A:
        """The answer of the active controller, of its `kind`."""
        try:
            answer = self._connected().send(request)
        except (UnsupportedError, EncodeError) as error:
            raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        assert isinstance(answer, kind)
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._active is not None:
            self._active.close()
            self._active = None

    def _connected(self) -> Connection:
        if self._active is None or self._active.closed:
            self._active = self._find()
        return self._active

    def _find(self) -> Connection:
        failures = []
        for address in self._addresses:
            try:
                return self._by(address)
            except PASSING as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise BrokerUnreachableError(f"no controller of {self.bootstrap} answers: {'; '.join(map(str, failures))}")

    def _by(self, address: tuple[str, int]) -> Connection:
        """A connection to the active controller, as the one at an address says."""
        connection = self._settings.connect(*address)
        try:
            active = self._active_by(connection)
        except BaseException:
            connection.close()
            raise
        if active == address:
            return connection
        connection.close()
        return self._settings.connect(*active)

    def _active_by(self, connection: Connection) -> tuple[str, int]:
        """Where the active controller is, as another one says; that one itself where it does not say.

        A BrokerUnreachableError where none is active that it knows of.
        """
        at = connection.host, connection.port
        try:
            answer = connection.send(wire.DescribeClusterRequest(endpoint_type=CONTROLLERS))
        except (UnsupportedError, EncodeError):
            return at
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            return at
        if answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
            raise ClientError(f"{connection.address} is the address of a broker, and not of a controller")
        refuse(answer.error_code, answer.error_message)
        for each in answer.brokers:
            if each.broker_id == answer.controller_id:
                return each.host, each.port
        raise BrokerUnreachableError(f"the controller at {connection.address} knows no active one at the moment")
