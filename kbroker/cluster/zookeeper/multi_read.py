"""ZooKeeper's MultiRead, which kazoo does not have: many znodes by one request and one answer, since ZooKeeper 3.6.

By itself each read costs kazoo some 150 µs in its threads, so that the states of 10,000 partitions take seconds.  An
older server answers that it does not know the request.  There are no watches with it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kazoo.exceptions import EXCEPTIONS

from kbroker.cluster.zookeeper.session import Stat, Znode

GET_DATA = 4
ERROR = -1
_HEADER = struct.Struct("!iBi")
_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_READ = _HEADER.pack(GET_DATA, 0, -1)
_END = _HEADER.pack(-1, 1, -1)


class MultiRead:
    """A request as kazoo writes and reads it, like those of `kazoo.protocol.serialization`; `paths` with the chroot."""

    __slots__ = ("paths",)
    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def serialize(self) -> bytes:
        """The body: a header and a read, without a watch, for each."""
        parts: list[bytes] = []
        for path in self.paths:
            encoded = path.encode()
            parts += (_READ, _INT.pack(len(encoded)), encoded, b"\0")
        return b"".join((*parts, _END))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Znode | Exception]:
        """For each of the paths, in order, the znode or kazoo's error."""
        found: list[Znode | Exception] = []
        while True:
            kind, done, _ = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if done:
                return found
            (number,) = _INT.unpack_from(data, offset)
            offset += _INT.size
            if kind == ERROR:
                found.append(EXCEPTIONS[number]())
            elif kind == GET_DATA:
                content = None if number < 0 else data[offset : offset + number]
                offset += max(0, number)
                czxid, _, ctime_ms, _, version, _, _, owner, *_ = _STAT.unpack_from(data, offset)
                found.append(Znode(content, Stat(version, czxid, owner, ctime_ms)))
                offset += _STAT.size
            else:
                raise ValueError(f"an answer to a read has type {kind}")
