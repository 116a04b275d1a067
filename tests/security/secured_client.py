"""A client of raw requests behind TLS and a login."""

from __future__ import annotations

from kbroker.testing.security import ADMIN
from tests.broker.client import Client
from tests.broker_process import BrokerProcess


class SecuredClient(Client):
    """One connection to a broker with `kbroker.testing.Security`, as one of its users by PLAIN."""

    def __init__(self, broker: BrokerProcess, user: str = ADMIN) -> None:
        super().__init__(broker.port)
        security = broker.security
        assert security is not None
        if security.encrypts:
            context = security.context(broker.tls_dir)
            self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")
        if security.authenticates:
            assert self.ask("SaslHandshake", 1, {"mechanism": "PLAIN"}).error_code == 0
            token = f"\0{user}\0{security.users[user]}".encode()
            assert self.ask("SaslAuthenticate", 2, {"auth_bytes": token}).error_code == 0
