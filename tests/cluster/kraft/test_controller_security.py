"""How connections to the controllers are secured.  Also of `kbroker.security.client.between_brokers`."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig
from kbroker.security.client.between_brokers import to_controllers
from kbroker.security.client.client_security import ClientSecurityError


def test_demands_of_controllers_that_cannot_be_met_end_the_start() -> None:
    """A broker would try for ever, with a mechanism that it does not have."""
    config = BrokerConfig.from_mapping(
        {
            "process.roles": "broker",
            "node.id": 9,
            "controller.quorum.bootstrap.servers": "c:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "sasl.mechanism.controller.protocol": "KERBEROS_V4",
        }
    )
    with pytest.raises(ClientSecurityError, match="KERBEROS_V4"):
        to_controllers(config)
