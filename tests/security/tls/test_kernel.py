"""The kernel's TLS: the keys that it is told, and whether it is used at all.

Also of `kbroker.security.tls.kernel`.  `tests/network/test_kernel_tls.py` is about connections.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from kbroker.security import listeners
from kbroker.security.tls import kernel, library
from tests.network.raw_client import scrape
from tests.network.tls_kernel import KernelStandIn
from tests.security.tls.secured import Secured, round_trip

AES_128, AES_256 = b"TLS_AES_128_GCM_SHA256", b"TLS_AES_256_GCM_SHA384"


@pytest.mark.parametrize(
    ("secret", "key", "iv"),
    [
        # RFC 8448, 3: the server's of the handshake, and of the application.
        (
            "b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38",
            "3fce516009c21727d0f2e4e86ee403bc",
            "5d313eb2671276ee13000b30",
        ),
        (
            "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
            "9f02283b6c9c07efc26bb9f2ac92e356",
            "cf782b88dd83549aadf1e984",
        ),
    ],
)
def test_keys_are_those_of_the_rfc(secret: str, key: str, iv: str) -> None:
    """No client could read what the kernel sends."""
    found = kernel.keys_of(kernel.SUITES[AES_128], bytes.fromhex(secret))
    assert (found.key.hex(), found.iv.hex()) == (key, iv)
    told = kernel.KernelTls(frozenset({AES_128}), renews_keys=False).crypto_info(AES_128, bytes.fromhex(secret), 258)
    # <linux/tls.h>: version, cipher_type, iv, key, salt, rec_seq.
    assert told == b"\x04\x03\x33\0" + found.iv[4:] + found.key + found.iv[:4] + b"\0\0\0\0\0\0\1\2"


@pytest.mark.parametrize(("suite", "size"), [(AES_128, 40), (AES_256, 56), (b"TLS_CHACHA20_POLY1305_SHA256", 56)])
def test_the_kernel_is_told_as_much_as_it_reads(suite: bytes, size: int) -> None:
    """The kernel refuses any other length."""
    told = kernel.KernelTls(frozenset(kernel.SUITES), renews_keys=False)
    info = told.crypto_info(suite, os.urandom(48), 0)
    assert info is not None
    assert len(info) == size
    assert told.crypto_info(b"TLS_AES_128_CCM_SHA256", os.urandom(32), 0) is None


class PatchedSocket(socket.socket):
    """A kernel's end of a connection, as `probe` meets it."""

    refuses = 0
    refused = kernel.TCP_ULP

    def setsockopt(self, level: int, name: int, value: object, size: int | None = None) -> None:  # type: ignore[override]
        if name == self.refused and self.refuses:
            raise OSError(self.refuses, os.strerror(self.refuses))


def connected(kind: type[socket.socket]) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(0.2)
    return kind(fileno=ours.detach()), theirs


@pytest.mark.parametrize(
    ("refused", "refuses", "reason"),
    [
        (kernel.TCP_ULP, errno.ENOENT, "the kernel has none"),
        (kernel.TLS_TX, errno.ENOENT, "the kernel refuses TLS_CHACHA20_POLY1305_SHA256: No such file or directory"),
        (kernel.TLS_TX, errno.EINVAL, "the kernel refuses TLS_CHACHA20_POLY1305_SHA256: Invalid argument"),
        (kernel.TLS_TX, 0, "the kernel's TLS_AES_128_GCM_SHA256 is not as it should be"),
    ],
)
def test_a_kernel_that_does_not_do_what_is_expected_is_not_used(
    monkeypatch: pytest.MonkeyPatch, refused: int, refuses: int, reason: str
) -> None:
    """Records would leave in clear, or as what no client can read."""
    monkeypatch.setattr(PatchedSocket, "refuses", refuses)
    monkeypatch.setattr(PatchedSocket, "refused", refused)
    monkeypatch.setattr(kernel, "_pair", lambda: connected(PatchedSocket))
    found = kernel.probe()
    assert isinstance(found, str)
    assert found.startswith(reason)
    used, said = listeners.kernel_tls("auto")
    assert used is None
    assert reason in said


class EncryptingSocket(socket.socket):
    """One whose kernel has TLS."""

    stand_in = KernelStandIn()

    def setsockopt(self, level: int, name: int, value: bytes, size: int | None = None) -> None:  # type: ignore[override]
        if error := self.stand_in.set(self.fileno(), level, name, value):
            raise OSError(error, os.strerror(error))

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        return self.stand_in.send(self.fileno(), kernel.DATA, data)

    sendall = send  # type: ignore[assignment]

    def sendmsg(self, parts: list[bytes], control: list[tuple[int, int, bytes]]) -> int:  # type: ignore[override]
        return self.stand_in.send(self.fileno(), control[0][2][0], b"".join(parts))


@pytest.mark.parametrize("renews_keys", [True, False])
def test_a_kernel_that_does_what_is_expected_is_used(monkeypatch: pytest.MonkeyPatch, renews_keys: bool) -> None:
    """`sendfile` would never serve TLS, and a client that asks for new keys would be cut off where it need not be."""
    monkeypatch.setattr(EncryptingSocket, "stand_in", KernelStandIn(renews_keys=renews_keys))
    monkeypatch.setattr(kernel, "_pair", lambda: connected(EncryptingSocket))
    monkeypatch.setattr(
        kernel.os,
        "sendfile",
        lambda out, of, at, size: EncryptingSocket.stand_in.send(out, kernel.DATA, os.pread(of, size, at)),
    )
    found, said = listeners.kernel_tls("auto")
    assert isinstance(found, kernel.KernelTls)
    assert found.suites == frozenset(kernel.SUITES)
    assert found.renews_keys is renews_keys
    assert "the kernel encrypts what is sent of files, by TLS_AES_128_GCM_SHA256, " in said
    assert listeners.kernel_tls("off") == (None, "the kernel's is not used: kbroker.tls.kernel is off")
    monkeypatch.setattr(library, "tells_secrets", lambda: False)
    assert listeners.kernel_tls("auto")[0] is None


@pytest.mark.parametrize("setting", ["auto", "off"])
def test_the_log_says_who_encrypts(tmp_path: Path, setting: str) -> None:
    """Whoever wonders why TLS costs what it costs would have to guess."""
    found = kernel.probe()
    is_used = setting == "auto" and isinstance(found, kernel.KernelTls)
    with Secured(tmp_path) as secured:
        broker = secured.start(**{"kbroker.tls.kernel": setting})
        round_trip(secured.of_client())
        said = broker.output()
        if is_used:
            assert "; the kernel encrypts what is sent of files, by " in said
            assert "the kernel encrypts records, OpenSSL the rest" in said
        else:
            reason = found if setting == "auto" else "kbroker.tls.kernel is off"
            assert f"; the kernel's is not used: {reason}" in said
            assert said.count("asks for no certificates; OpenSSL encrypts all") == 1
        assert (scrape(broker.metrics_url)["kbroker_tls_kernel_connections_total"] > 0) is is_used
