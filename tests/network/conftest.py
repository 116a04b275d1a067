"""What several tests of the network share."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from tests.network import socket_kinds
from tests.network.tls_kernel import kernel_with_tls


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> socket_kinds.Certificate:
    """One of this run's own."""
    return socket_kinds.make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def encrypted(certificate: socket_kinds.Certificate) -> socket_kinds.SocketKind:
    """The small and slow socket part of tests."""
    return socket_kinds.encrypted(certificate)


@pytest.fixture(scope="module")
def tls(certificate: socket_kinds.Certificate) -> socket_kinds.SocketKind:
    """Sockets under TLS 1.3."""
    return socket_kinds.tls(certificate)


@pytest.fixture(scope="module")
def tls12(certificate: socket_kinds.Certificate) -> socket_kinds.SocketKind:
    """Sockets under TLS 1.2, with no thread to help."""
    return socket_kinds.tls(certificate, ssl.TLSVersion.TLSv1_2, threads=0)


@pytest.fixture
def kernel(certificate: socket_kinds.Certificate) -> Iterator[socket_kinds.SocketKind]:
    """Sockets under TLS 1.3 of which the kernel encrypts what it can."""
    with kernel_with_tls() as found:
        yield socket_kinds.tls(certificate, kernel=found)


@pytest.fixture(params=["plain", "encrypted", "tls", "tls12", "kernel"])
def every_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every promise of a connection holds whatever its socket part is."""
    _choose(request, monkeypatch)


@pytest.fixture(params=["plain", "tls", "kernel"])
def every_lender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So do those about threads that send, for kinds that lend them something."""
    _choose(request, monkeypatch)


def _choose(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = socket_kinds.PLAIN if request.param == "plain" else request.getfixturevalue(request.param)
    monkeypatch.setattr(socket_kinds, "current", chosen)
