"""A kernel that has TLS, for tests: the system's where there is one, else one that encrypts as the kernel does."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator

from kbroker.security.tls.kernel import (
    IV_BYTES,
    SOL_TLS,
    SUITES,
    TCP_ULP,
    TLS_TX,
    VERSION_1_3,
    KernelTls,
    Suite,
    probe,
)
from tests.extensions.kernel_stand_in import stand_in

RECORD_BYTES = 16384
HEAD_BYTES = 4


class _Side:
    """What is sent on one socket: `pending` is encrypted and waits for room, as with the kernel."""

    def __init__(self) -> None:
        self.suite: Suite | None = None
        self.key, self.iv, self.records = b"", b"", 0
        self.pending = b""

    def take_keys(self, value: bytes) -> None:
        version, number = struct.unpack_from("=HH", value)
        assert version == VERSION_1_3
        self.suite = suite = next(each for each in SUITES.values() if each.number == number)
        iv_end = HEAD_BYTES + IV_BYTES - suite.salt_bytes
        key_end = iv_end + suite.key_bytes
        salt_end = key_end + suite.salt_bytes
        self.iv = value[key_end:salt_end] + value[HEAD_BYTES:iv_end]
        self.key = value[iv_end:key_end]
        (self.records,) = struct.unpack(">Q", value[salt_end:])

    def encrypt(self, kind: int, data: bytes) -> None:
        assert self.suite is not None
        plain = data + bytes([kind])
        header = struct.pack(">BHH", 23, 0x0303, len(plain) + 16)
        number = (int.from_bytes(self.iv, "big") ^ self.records).to_bytes(IV_BYTES, "big")
        self.pending += header + self.suite.cipher(self.key).encrypt(number, plain, header)
        self.records += 1


class KernelStandIn:
    """Takes a record at a time; what the socket has no room for leaves by itself later."""

    def __init__(self, *, renews_keys: bool = True, refuses: int = 0) -> None:
        self.renews_keys = renews_keys
        self.refuses = refuses
        self.renewals = 0
        self.lock = threading.Lock()
        self.sides: dict[int, _Side] = {}
        self.flushers: list[threading.Thread] = []

    def set(self, fd: int, level: int, name: int, value: bytes) -> int:
        with self.lock:
            inode = os.fstat(fd).st_ino
            if (level, name, value) == (socket.IPPROTO_TCP, TCP_ULP, b"tls"):
                self.sides[inode] = _Side()
                return 0
            assert (level, name) == (SOL_TLS, TLS_TX)
            side = self.sides[inode]
            if self.refuses or (side.suite is not None and not self.renews_keys):
                return self.refuses or errno.EBUSY
            self.renewals += side.suite is not None
            side.take_keys(value)
            return 0

    def takes(self, fd: int) -> bool:
        side = self.sides.get(os.fstat(fd).st_ino)
        return side is not None and side.suite is not None

    def send(self, fd: int, kind: int, data: bytes) -> int:
        with self.lock:
            side = self.sides[os.fstat(fd).st_ino]
            if side.pending:
                return -errno.EAGAIN
            taken = 0
            while taken < len(data) and not side.pending:
                portion = data[taken : taken + RECORD_BYTES]
                side.encrypt(kind, portion)
                taken += len(portion)
                try:
                    self._flush(fd, side)
                except OSError as error:
                    return -(error.errno or errno.EPIPE)
            if side.pending:
                thread = threading.Thread(target=self._flush_later, args=(os.dup(fd), side))
                self.flushers.append(thread)
                thread.start()
            return taken

    def _flush(self, fd: int, side: _Side) -> None:
        while side.pending:
            try:
                with socket.socket(fileno=os.dup(fd)) as raw:
                    sent = raw.send(side.pending, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            side.pending = side.pending[sent:]

    def _flush_later(self, fd: int, side: _Side) -> None:
        try:
            room = select.poll()
            room.register(fd, select.POLLOUT)
            while side.pending:
                room.poll()
                with self.lock, contextlib.suppress(OSError):
                    self._flush(fd, side)
                    continue
                return
        finally:
            os.close(fd)


@contextlib.contextmanager
def kernel_with_tls() -> Iterator[KernelTls]:
    """What `TlsShared` is given, while C finds a kernel with TLS."""
    found = probe()
    if isinstance(found, KernelTls):
        yield found
    else:
        with standing_in(KernelStandIn()):
            yield KernelTls(frozenset(SUITES), renews_keys=True)


@contextlib.contextmanager
def standing_in(kernel: KernelStandIn) -> Iterator[None]:
    """C finds that kernel instead of the system's."""
    stand_in(kernel)
    try:
        yield
    finally:
        for each in kernel.flushers:
            each.join()
        stand_in(None)
