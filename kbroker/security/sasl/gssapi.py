"""The server's end of GSSAPI (RFC 4752): Kerberos by the package gssapi, an extra of kbroker's.

No security layer is offered, as in Kafka: TLS is there for that.  The settings are those of a Krb5LoginModule with a
`keyTab` and a `principal`, whose realm is the broker's own.  Rules make a client's name of its principal
(`kerberos_names`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType

from kbroker.security.sasl.kerberos_names import KerberosNames, NoKerberosNameError
from kbroker.security.sasl.mechanism import Authenticated, SaslError, ServerMechanism

NO_LAYER = b"\x01\x00\x00\x00"
"""No security layer, and no size of its messages."""


def _library() -> ModuleType:
    return importlib.import_module("gssapi")


class GssapiServer(ServerMechanism):
    """Tickets until the context stands, then the security layer is agreed on."""

    def __init__(self, options: Mapping[str, str], names: KerberosNames) -> None:
        self._names = names
        gssapi = self._gssapi = _library()
        principal = options.get("principal")
        name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        store = {"keytab": options["keyTab"]} if "keyTab" in options else None
        try:
            credentials = gssapi.Credentials(usage="accept", name=name, store=store)
            self._context = gssapi.SecurityContext(creds=credentials, usage="accept")
        except gssapi.exceptions.GSSError as error:
            raise SaslError(f"the broker's Kerberos credentials cannot be used: {type(error).__name__}") from None
        self._realm = "" if principal is None else principal.rpartition("@")[2]
        self._offered = False
        self.outcome: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        if self.outcome is not None:
            raise SaslError("a token behind the last one")
        try:
            if not self._context.complete:
                answer = self._context.step(token) or b""
                if answer or not self._context.complete:
                    return bytes(answer)
                return self._offer()
            if not self._offered:
                return self._offer()
            return self._agree(self._context.unwrap(token).message)
        except self._gssapi.exceptions.GSSError as error:
            raise SaslError(f"GSSAPI: {type(error).__name__}") from None

    def _offer(self) -> bytes:
        self._offered = True
        return bytes(self._context.wrap(NO_LAYER, False).message)

    def _agree(self, chosen: bytes) -> bytes:
        if len(chosen) < len(NO_LAYER) or chosen[:1] != NO_LAYER[:1]:
            raise SaslError("GSSAPI: the client wants a security layer")
        principal = str(self._context.initiator_name)
        try:
            short = self._names.name_of(principal, self._realm or principal.rpartition("@")[2])
        except NoKerberosNameError as error:
            raise SaslError(f"GSSAPI: {error}") from None
        authorization = chosen[len(NO_LAYER) :].decode("utf-8", "replace")
        if authorization not in ("", principal, short):
            raise SaslError("GSSAPI: the client wants to be another principal")
        self.outcome = Authenticated(short)
        return b""
