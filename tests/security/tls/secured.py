"""A broker with a listener under TLS, beside a plain one, and the files of its authority and clients."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from kbroker.authorities import trusting
from tests.broker_process import BrokerProcess
from tests.ports import free_port
from tests.security.tls.authority import Authority, Issued, name

SECRET = "the-secret"
WAIT_SECONDS = 60


class Secured:
    """The files of an authority, of a broker and of a client, and brokers with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.issued = self.authority.issue()
        self.client = self.authority.issue(name(("O", "Org"), ("OU", "ServiceUsers"), ("CN", "Duke")))
        self.store = self.issued.write_pkcs12(folder / "broker.p12", SECRET)
        self.trust = self.authority.write_pem(folder / "ca.pem")
        self.port, self.plain_port = free_port(), free_port()
        self.broker: BrokerProcess | None = None

    def __enter__(self) -> Secured:
        return self

    def __exit__(self, *_: object) -> None:
        if self.broker is not None and self.broker.running:
            self.broker.kill()

    def settings(self, **others: str) -> dict[str, str]:
        return {
            "listeners": f"SSL://127.0.0.1:{self.port},PLAINTEXT://127.0.0.1:{self.plain_port}",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.store),
            "ssl.keystore.password": SECRET,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            **{key if "." in key else key.replace("_", "."): value for key, value in others.items()},
        }

    def make(self, settings: Mapping[str, str]) -> BrokerProcess:
        self.broker = BrokerProcess(self.folder / "broker", settings, port=self.plain_port)
        return self.broker

    def start(self, **others: str) -> BrokerProcess:
        broker = self.make(self.settings(**others))
        broker.start()
        return broker

    def of_client(self, issued: Issued | None = None, **others: Any) -> dict[str, Any]:
        """Settings of librdkafka, with a certificate or without."""
        own = (
            {}
            if issued is None
            else {
                "ssl.key.pem": issued.key_pem(),
                "ssl.certificate.pem": issued.chain_pem(),
            }
        )
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trust),
            **own,
            **others,
        }

    def context(self, **versions: ssl.TLSVersion) -> ssl.SSLContext:
        context = trusting(str(self.trust))
        for key, value in versions.items():
            setattr(context, key, value)
        return context

    def shown(self) -> bytes:
        """The certificate that the broker shows now."""
        with self.wrapped() as wrapped:
            certificate = wrapped.getpeercert(binary_form=True)
            assert certificate is not None
            return certificate

    def wrapped(self) -> ssl.SSLSocket:
        """A connection behind its handshake."""
        plain = socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS)
        return self.context().wrap_socket(plain, server_hostname="localhost")


def round_trip(settings: Mapping[str, Any], topic: str = "t", count: int = 50, size: int = 20_000) -> None:
    """Produce records and consume them."""
    producer = Producer({**settings, "linger.ms": 0})
    values = [os.urandom(size) for _ in range(count)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT_SECONDS) == 0
    consumer = Consumer({**settings, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(got) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.5):
            assert message.error() is None, message.error()
            got.append(message.value())
    consumer.close()
    assert got == values
