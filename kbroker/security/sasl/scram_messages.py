"""The four messages of SCRAM (RFC 5802), as Kafka reads and writes them."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field

from kbroker.security.sasl.mechanism import SaslError

# ASCII alone, as in Kafka.
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_MORE = rf"(?P<more>(?:,[A-Za-z]+={_VALUE})*)"
_RESERVED = rf"(?:m={_VALUE},)?"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization>{_NAME}))?,)(?P<bare>{_RESERVED}n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_MORE})"
)
_SERVER_FIRST = re.compile(
    rf"{_RESERVED}r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_MORE}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_MORE}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_MORE}")
TOKEN_EXTENSION = "tokenauth"
NO_BINDING = "n,,"


def escaped(name: str) -> str:
    """A name as a `saslname`."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """The name that a `saslname` stands for."""
    return name.replace("=2C", ",").replace("=3D", "=")


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """Who the client wants to be.  `bare` is what the proofs are over."""

    header: str
    bare: str
    name: str
    authorization: str
    nonce: str
    by_token: bool


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """What the client needs to know of the credential."""

    nonce: str
    salt: bytes
    iterations: int

    def __str__(self) -> str:
        return f"r={self.nonce},s={base64.b64encode(self.salt).decode()},i={self.iterations}"


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's proof."""

    without_proof: str
    channel: bytes
    nonce: str
    proof: bytes = field(repr=False)


def read_client_first(token: bytes) -> ClientFirst:
    """SaslError for anything else."""
    found = _match(_CLIENT_FIRST, token, "Invalid SCRAM client first message format")
    extensions = dict(each.split("=", 1) for each in found["more"].split(",")[1:])
    return ClientFirst(
        found["header"],
        found["bare"],
        unescaped(found["name"]),
        unescaped(found["authorization"] or ""),
        found["nonce"],
        extensions.get(TOKEN_EXTENSION, "").lower() == "true",
    )


def read_server_first(token: bytes) -> ServerFirst:
    """SaslError for anything else."""
    found = _match(_SERVER_FIRST, token, "Invalid SCRAM server first message format")
    iterations = int(found["iterations"])
    if iterations < 1:
        raise SaslError("Invalid SCRAM server first message format: invalid iterations")
    return ServerFirst(found["nonce"], _decoded(found["salt"]), iterations)


def read_client_final(token: bytes) -> ClientFinal:
    """SaslError for anything else."""
    found = _match(_CLIENT_FINAL, token, "Invalid SCRAM client final message format")
    return ClientFinal(found["without_proof"], _decoded(found["channel"]), found["nonce"], _decoded(found["proof"]))


def read_server_final(token: bytes) -> bytes:
    """The server's signature.  SaslError for anything else, and where the server refuses."""
    found = _match(_SERVER_FINAL, token, "Invalid SCRAM server final message format")
    if found["error"]:
        raise SaslError("Sasl authentication using SCRAM failed: the server refuses")
    return _decoded(found["signature"])


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("Invalid base64 in a SCRAM message") from None


def _match(pattern: re.Pattern[str], token: bytes, otherwise: str) -> re.Match[str]:
    try:
        found = pattern.fullmatch(token.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise SaslError(otherwise)
    return found
