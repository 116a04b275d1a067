"""Addresses as rules have them: Java's way of writing."""

from __future__ import annotations

import pytest

from kbroker.metadata.security_image import Acl
from kbroker.security.acl.settings import AuthorizerSettings
from kbroker.security.acl.standard_authorizer import StandardAuthorizer, java_address
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.principal import Principal

# `InetAddress.getByName(...).getHostAddress()` of Java 17.
ADDRESSES = {
    "10.0.0.1": "10.0.0.1",
    "::1": "0:0:0:0:0:0:0:1",
    "::": "0:0:0:0:0:0:0:0",
    "fe80::1%eth0": "fe80:0:0:0:0:0:0:1%eth0",
    "2001:DB8::00ff:0": "2001:db8:0:0:0:0:ff:0",
    "2001:db8:1:2:3:4:5:6": "2001:db8:1:2:3:4:5:6",
    "1::": "1:0:0:0:0:0:0:0",
    "::ffff:10.0.0.1": "10.0.0.1",
}


@pytest.mark.parametrize("written", ADDRESSES)
def test_an_address_is_compared_as_java_writes_it(written: str) -> None:
    """A denial for an address of IPv6, made for Kafka, would keep nobody out."""
    assert java_address(written) == ADDRESSES[written]
    alice = Principal("User", "alice")
    acls = [
        Acl(2, "*", 3, "User:alice", "*", 3, 3),
        Acl(2, "*", 3, "User:alice", ADDRESSES[written], 3, 2),
    ]
    authorizer = StandardAuthorizer(AuthorizerSettings(), acls)
    assert not authorizer.is_authorized(alice, written, Operation.READ, ResourceKind.TOPIC, "t")
    assert authorizer.is_authorized(alice, "10.0.0.9", Operation.READ, ResourceKind.TOPIC, "t")
