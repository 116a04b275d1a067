"""The host that a broker registers with.  Of `kbroker.cluster.named_host`."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kbroker.cluster.named_host import with_host
from kbroker.metadata.image import BrokerImage, Endpoint


def test_a_listener_without_a_host_is_found_by_this_machines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would be given an address that is none."""
    monkeypatch.setattr(socket, "getfqdn", lambda: "kafka-1.example.org")
    broker = BrokerImage(1, {"PLAINTEXT": Endpoint("", 9092), "INSIDE": Endpoint("10.0.0.1", 9093)})
    shown = asyncio.run(with_host(broker))
    assert shown.endpoints == {
        "PLAINTEXT": Endpoint("kafka-1.example.org", 9092),
        "INSIDE": Endpoint("10.0.0.1", 9093),
    }


def test_hosts_that_are_named_stay() -> None:
    """An advertised address would be replaced, and a look-up of the name could hold up the start."""
    broker = BrokerImage(1, {"PLAINTEXT": Endpoint("10.0.0.1", 9092)})
    assert asyncio.run(with_host(broker)) is broker
