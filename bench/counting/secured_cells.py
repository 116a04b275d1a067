"""Requests of clients that log in, have rights, or come over TLS."""

from __future__ import annotations

import base64
import hmac
import ssl
from collections.abc import Callable, Mapping

from bench import frames
from bench.cell import SMALL_RECORD_BYTES
from bench.counting.counted import Counted, Serve, good
from bench.counting.machine import Machine, UnansweredError, host_of
from kbroker.schemas import wire
from kbroker.security.scram import ScramMechanism, client_key, salted_password, stored_key
from tests.simulation.encrypted import contexts, tls_settings

SASL_PORT, TLS_PORT = 9093, 9094
USER, PASSWORD = "alice", "alice-secret"
TOPIC, LITERAL, WRITE, ALLOW = 2, 3, 4, 3
ITERATIONS = 4096
SALT = bytes(20)
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def settings(node: int) -> Mapping[str, str]:
    """A plain listener whose clients may do everything, one that authenticates, one under TLS."""
    host = host_of(node)
    listeners = f"PLAINTEXT://{host}:9092,SASL_PLAINTEXT://{host}:{SASL_PORT}"
    return {
        **tls_settings(listeners, host),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_MODULE} required user_{USER}="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def _logged_in(counted: Counted) -> Counted:
    """A connection of the user."""
    made = Counted(counted.machine, counted.node, counted.machine.connect(counted.node, SASL_PORT))
    good(made.ask(wire.SaslHandshakeRequest(mechanism="PLAIN"), 1))
    good(made.ask(wire.SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()), 2))
    return made


def produce_with_rights(counted: Counted) -> Serve:
    """One record by a user whom an ACL allows it, among a hundred ACLs of others."""
    topic = counted.topic()
    acl = wire.CreateAclsRequest.AclCreation
    rights = [
        acl(
            resource_type=TOPIC,
            resource_name=topic if number == 0 else f"other-{number:03}",
            resource_pattern_type=LITERAL,
            principal=f"User:{USER}",
            host="*",
            operation=WRITE,
            permission_type=ALLOW,
        )
        for number in range(100)
    ]
    for each in counted.ask(wire.CreateAclsRequest(creations=rights), 3).results:
        good(each)
    frame = frames.produce(topic, 0, frames.batch(1, SMALL_RECORD_BYTES), 1)
    return _logged_in(counted).repeated(frame, frames.produce_layout(topic).error_at)


def scram_login(counted: Counted) -> Serve:
    """A new connection and the login of a user, from the handshake until the broker knows who it is."""
    mechanism = ScramMechanism.SCRAM_SHA_256
    salted = salted_password(mechanism, PASSWORD.encode(), SALT, ITERATIONS)
    upsertion = wire.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=USER, mechanism=mechanism, iterations=ITERATIONS, salt=SALT, salted_password=salted
    )
    good(counted.ask(wire.AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0).results[0])
    key = client_key(mechanism, salted)

    def serve() -> None:
        line = counted.machine.connect(counted.node, SASL_PORT)
        client = Counted(counted.machine, counted.node, line)
        good(client.ask(wire.SaslHandshakeRequest(mechanism=mechanism.sasl_name), 1))
        first = f"n={USER},r=client-nonce"
        said = good(client.ask(wire.SaslAuthenticateRequest(auth_bytes=b"n,," + first.encode()), 2)).auth_bytes
        server_first = bytes(said).decode()
        nonce = server_first.split(",")[0].removeprefix("r=")
        final = f"c=biws,r={nonce}"
        message = f"{first},{server_first},{final}".encode()
        signature = hmac.digest(stored_key(mechanism, key), message, mechanism.hash_name)
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        whole = f"{final},p={base64.b64encode(proof).decode()}"
        good(client.ask(wire.SaslAuthenticateRequest(auth_bytes=whole.encode()), 2))
        line.abort()
        counted.machine.settle()

    return serve


class Encrypted(Counted):
    """A connection under TLS 1.3, whose client's part of the work does not count."""

    def __init__(self, machine: Machine, node: int) -> None:
        super().__init__(machine, node, machine.connect(node, TLS_PORT))
        self.line.is_framed = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = contexts()[-1].wrap_bio(self._incoming, self._outgoing)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._incoming.write(self.machine.ask(self.line, self._outgoing.read()))
        self.line.received.clear()
        self.line.context.run(self.line.feed, self._outgoing.read())
        machine.settle()
        self._incoming.write(b"".join(self.line.received))  # Tickets.

    def send(self, frame: bytes) -> bytes:
        self._tls.write(frame)
        self._incoming.write(self.machine.ask(self.line, self._outgoing.read()))
        found = bytearray()
        while len(found) < 4 or len(found) < 4 + int.from_bytes(found[:4], "big"):
            try:
                found += self._tls.read(1 << 20)
            except ssl.SSLWantReadError:
                self.line.received.clear()
                self.machine.settle()
                if not self.line.received:
                    raise UnansweredError("half an answer") from None
                self._incoming.write(b"".join(self.line.received))
        return bytes(found)


def over_tls(prepare: Callable[[Counted], Serve]) -> Callable[[Counted], Serve]:
    """A cell as it is, over TLS."""
    return lambda counted: prepare(Encrypted(counted.machine, counted.node))
