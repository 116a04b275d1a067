"""The security of a client's connections, by settings of any client's names.

`java_settings` and `librdkafka_settings` make one of the settings of Kafka's and of librdkafka's clients.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbroker.security.protocols import has_sasl, has_tls
from kbroker.security.sasl.mechanism import Login
from kbroker.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerClient
from kbroker.security.sasl.plain import PLAIN, PlainClient
from kbroker.security.sasl.scram_client import ScramClient
from kbroker.security.scram import BY_NAME

if TYPE_CHECKING:
    from kbroker.security.client.oauth_tokens import TokenSource
    from kbroker.security.sasl.mechanism import ClientMechanism
    from kbroker.security.tls.settings import TlsSettings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = (PLAIN, *BY_NAME, OAUTHBEARER)


class ClientSecurityError(ValueError):
    """Settings that no connection can be made with.  The text names the setting, never a secret."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """`tls` is there where `protocol` encrypts; `mechanism` where it authenticates, with a `login` or with `tokens`.

    `verifies`: whether the broker's certificate has to be trusted.
    """

    protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    mechanism: str = ""
    login: Login | None = None
    tokens: TokenSource | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    verifies: bool = True

    @property
    def encrypts(self) -> bool:
        """Whether connections are under TLS."""
        return has_tls(self.protocol)

    @property
    def authenticates(self) -> bool:
        """Whether connections begin with SASL."""
        return has_sasl(self.protocol)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing of it."""
        return self.protocol == "PLAINTEXT"

    def context(self) -> ssl.SSLContext:
        """A context for connections, of the stores as they are now.  TlsError; what it reads may block."""
        from kbroker.security.tls.client_context import client_context

        assert self.tls is not None
        context = client_context(self.tls)
        if not self.verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def client_mechanism(self) -> ClientMechanism:
        """This side of one exchange.  OAuthTokenError, after a request that may block, where there is no token."""
        if self.mechanism == OAUTHBEARER:
            assert self.tokens is not None
            return OAuthBearerClient(self.tokens.token(), self.extensions)
        assert self.login is not None
        if self.mechanism == PLAIN:
            return PlainClient(self.login)
        return ScramClient(BY_NAME[self.mechanism], self.login)


NO_SECURITY = ClientSecurity()
