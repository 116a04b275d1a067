"""What several tests of the network share."""

from __future__ import annotations

import pytest

from tests.network import socket_kinds


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> socket_kinds.SocketKind:
    """Sockets under TLS, with a certificate of their own."""
    return socket_kinds.encrypted(tmp_path_factory.mktemp("certificate"))
