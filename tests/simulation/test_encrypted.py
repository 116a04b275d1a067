"""Model clients under TLS: what they send and get is what a client without it would, and each session is as long."""

from __future__ import annotations

import random
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.encrypted import EncryptedSide, Encryption, tls_settings
from tests.simulation.judge import Judge, ViolationError


class Pair:
    """A client's side, and a server of OpenSSL at the other end."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        settings = tls_settings("", "localhost")
        pem = folder / "server.pem"
        pem.write_text(settings["ssl.keystore.key"] + settings["ssl.keystore.certificate.chain"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.closed = self.sent_end = False
        self.got = bytearray()
        self.sizes: list[int] = []
        self._room = bytearray(7)
        world: Any = SimpleNamespace(later=random.Random(seed), judge=Judge(lambda: 0.0))
        client: Any = SimpleNamespace(
            name="client", connection_made=lambda end: None, get_buffer=lambda _: self._room, buffer_updated=self._take
        )
        self.side: EncryptedSide = Encryption(world).over(client)
        self.side.connection_made(self)  # type: ignore[arg-type]

    def _take(self, size: int) -> None:
        self.got += self._room[:size]

    def write(self, data: bytes) -> None:
        """What the client's end is given."""
        self.sizes.append(len(data))
        self._incoming.write(data)

    def write_eof(self) -> None:
        self.sent_end = True

    def says(self, data: bytes) -> None:
        """What comes at the client's end."""
        self.sizes.append(-len(data))
        self.side.get_buffer(-1)[: len(data)] = data
        self.side.buffer_updated(len(data))

    def shake(self) -> None:
        for _ in range(4):
            try:
                self.server.do_handshake()
            except ssl.SSLWantReadError:
                pass
            if data := self._outgoing.read():
                self.says(data)

    def answer(self, data: bytes) -> None:
        self.server.write(data)
        self.says(self._outgoing.read())


def test_what_is_sent_before_the_handshake_is_over_comes_behind_it(tmp_path: Path) -> None:
    """The first requests of each connection would be lost."""
    pair = Pair(tmp_path)
    pair.side.write(b"early")
    pair.shake()
    pair.side.write(b", late")
    assert pair.server.read(100) + pair.server.read(100) == b"early, late"
    pair.answer(b"an answer of some length")
    assert pair.got == b"an answer of some length"


def test_the_end_of_requests_comes_behind_them(tmp_path: Path) -> None:
    """A client that says all and ends its side would be refused in the handshake."""
    pair = Pair(tmp_path)
    pair.side.write(b"all")
    pair.side.write_eof()
    assert not pair.sent_end
    pair.shake()
    assert pair.server.read(100) == b"all"


def test_what_is_no_record_of_the_session_is_seen(tmp_path: Path) -> None:
    """A broker could send plain bytes, or those of another session."""
    pair = Pair(tmp_path)
    pair.shake()
    with pytest.raises(ViolationError, match="cannot be decrypted"):
        pair.says(b"\x17\x03\x03\x00\x20" + bytes(0x20))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_session_has_messages_of_the_same_sizes(tmp_path: Path, seed: int) -> None:
    """A seed would be another history each time: what of a message comes at once depends on its size."""
    found = set()
    for _ in range(5):
        pair = Pair(tmp_path, seed)
        pair.side.write(b"a request")
        pair.shake()
        pair.answer(b"an answer")
        found.add(tuple(pair.sizes))
    assert len(found) == 1
