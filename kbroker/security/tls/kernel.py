"""The kernel's TLS (`tls` of Linux): whether it is there and does what is expected of it, and the keys that it takes.

It encrypts what a listener sends of files, so that `sendfile` serves TLS as it serves plain listeners.  Keys come of
the secret of a session of TLS 1.3 (RFC 8446, 7.3), laid out as `struct tls12_crypto_info_…` in <linux/tls.h>.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

if TYPE_CHECKING:
    from collections.abc import Mapping

TCP_ULP = 31
SOL_TLS = 282
TLS_TX = 1
TLS_SET_RECORD_TYPE = 1
VERSION_1_3 = 0x0304
IV_BYTES = 12
ALERT, HANDSHAKE, DATA = 21, 22, 23
WAIT_SECONDS = 1.0


class Suite(NamedTuple):
    """`number` is the kernel's; `salt_bytes` of the initialization vector are named apart from the rest."""

    number: int
    key_bytes: int
    salt_bytes: int
    digest: type[hashes.SHA256 | hashes.SHA384]
    cipher: type[AESGCM | ChaCha20Poly1305]


SUITES: Mapping[bytes, Suite] = {
    b"TLS_AES_128_GCM_SHA256": Suite(51, 16, 4, hashes.SHA256, AESGCM),
    b"TLS_AES_256_GCM_SHA384": Suite(52, 32, 4, hashes.SHA384, AESGCM),
    b"TLS_CHACHA20_POLY1305_SHA256": Suite(54, 32, 0, hashes.SHA256, ChaCha20Poly1305),
}


class Keys(NamedTuple):
    """Of one side of a session."""

    key: bytes
    iv: bytes


class KernelTls:
    """`suites`: those that the kernel has; `renews_keys`: whether it takes others for a socket that has some (Linux
    6.14)."""

    def __init__(self, suites: frozenset[bytes], *, renews_keys: bool) -> None:
        self.suites = suites
        self.renews_keys = renews_keys

    def crypto_info(self, suite: bytes, secret: bytes, records: int) -> bytes | None:
        """The structure for a session that has sent so many records; None where the kernel lacks this suite."""
        if suite not in self.suites:
            return None
        return crypto_info(SUITES[suite], keys_of(SUITES[suite], secret), records)

    def next_secret(self, suite: bytes, secret: bytes) -> bytes:
        """The secret behind a KeyUpdate (RFC 8446, 7.2)."""
        return _expand(SUITES[suite], secret, b"traffic upd", len(secret))


def keys_of(suite: Suite, secret: bytes) -> Keys:
    """The keys of a traffic secret."""
    return Keys(_expand(suite, secret, b"key", suite.key_bytes), _expand(suite, secret, b"iv", IV_BYTES))


def _expand(suite: Suite, secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label without a context."""
    label = b"tls13 " + label
    info = struct.pack(">HB", size, len(label)) + label + b"\0"
    return HKDFExpand(suite.digest(), size, info).derive(secret)


def crypto_info(suite: Suite, keys: Keys, records: int) -> bytes:
    """`struct tls12_crypto_info_…` of a side that has sent so many records."""
    salt, iv = keys.iv[: suite.salt_bytes], keys.iv[suite.salt_bytes :]
    return struct.pack("=HH", VERSION_1_3, suite.number) + iv + keys.key + salt + struct.pack(">Q", records)


# Whether it is there


class _NotAsExpectedError(Exception):
    """What the kernel has encrypted is not what a client could read."""


class _NoneError(Exception):
    """The kernel has no TLS."""


def probe() -> KernelTls | str:
    """What the kernel does, after it has sent something over a connection to itself; a text: why it is not used."""
    found = set()
    reason = "the kernel has no suite of TLS 1.3"
    for name, suite in SUITES.items():
        try:
            _try(suite)
        except _NotAsExpectedError as error:
            return f"the kernel's {name.decode()} is not as it should be: {error}"
        except _NoneError:
            return "the kernel has none (its module tls is not there)"
        except OSError as error:
            reason = f"the kernel refuses {name.decode()}: {error.strerror}"
        else:
            found.add(name)
    return KernelTls(frozenset(found), renews_keys=all(map(_renews, found))) if found else reason


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname(), WAIT_SECONDS)
        theirs, _ = server.accept()
    theirs.settimeout(WAIT_SECONDS)
    return ours, theirs


def _try(suite: Suite) -> None:
    """Have the kernel send bytes, a range of a file and an alert, and read what comes as a client does.  _NoneError,
    OSError where it has not this suite, _NotAsExpectedError."""
    keys, records = Keys(os.urandom(suite.key_bytes), os.urandom(IV_BYTES)), 7
    ours, theirs = _pair()
    with ours, theirs:
        try:
            ours.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        except FileNotFoundError:
            raise _NoneError from None
        ours.setsockopt(SOL_TLS, TLS_TX, crypto_info(suite, keys, records))
        content = os.urandom(20_000)
        with os.fdopen(os.memfd_create("kbroker-tls", os.MFD_CLOEXEC), "w+b", buffering=0) as file:
            file.write(content)
            ours.send(b"header", socket.MSG_MORE)
            if os.sendfile(ours.fileno(), file.fileno(), 100, 19_000) != 19_000:
                raise _NotAsExpectedError("sendfile takes a part alone")
        expected = [(DATA, each) for each in b"header" + content[100:19_100]]
        said = _read(theirs, suite, keys, records, len(expected))
        if [(kind, each) for kind, text in said for each in text] != expected:
            raise _NotAsExpectedError("other bytes come than were sent")
        records += len(said)
        ours.sendmsg([b"\1\0"], [(SOL_TLS, TLS_SET_RECORD_TYPE, bytes([ALERT]))])
        if _read(theirs, suite, keys, records, 2) != [(ALERT, b"\1\0")]:
            raise _NotAsExpectedError("an alert is no alert")


def _renews(name: bytes) -> bool:
    """Whether it takes new keys amid a connection."""
    suite = SUITES[name]
    first, second = (Keys(os.urandom(suite.key_bytes), os.urandom(IV_BYTES)) for _ in range(2))
    ours, theirs = _pair()
    with ours, theirs:
        try:
            ours.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
            ours.setsockopt(SOL_TLS, TLS_TX, crypto_info(suite, first, 0))
            ours.sendmsg([b"\x18\0\0\1\0"], [(SOL_TLS, TLS_SET_RECORD_TYPE, bytes([HANDSHAKE]))])
            ours.setsockopt(SOL_TLS, TLS_TX, crypto_info(suite, second, 0))
            ours.sendall(b"new")
            old = _read(theirs, suite, first, 0, 5)
            return old == [(HANDSHAKE, b"\x18\0\0\1\0")] and _read(theirs, suite, second, 0, 3) == [(DATA, b"new")]
        except (OSError, _NotAsExpectedError):
            return False


def _read(source: socket.socket, suite: Suite, keys: Keys, records: int, size: int) -> list[tuple[int, bytes]]:
    """The records of the next `size` bytes, each with its kind.  OSError, _NotAsExpectedError."""
    found: list[tuple[int, bytes]] = []
    while sum(len(text) for _, text in found) < size:
        header = _exactly(source, 5)
        number = (int.from_bytes(keys.iv, "big") ^ (records + len(found))).to_bytes(IV_BYTES, "big")
        encrypted = _exactly(source, int.from_bytes(header[3:], "big"))
        try:
            plain = suite.cipher(keys.key).decrypt(number, encrypted, header)
        except InvalidTag:
            raise _NotAsExpectedError("a client could not read it") from None
        found.append((plain[-1], plain[:-1]))
    return found


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            more = source.recv(size - len(data))
        except TimeoutError:
            raise _NotAsExpectedError("too little comes") from None
        if not more:
            raise _NotAsExpectedError("the connection ends")
        data += more
    return data
