"""A well-behaved client in a process of its own: one record a millisecond or so, and how long each answer took.

Prints a line `<begin> <seconds>` for each answer (monotonic clock) until its standard input ends.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

from bench.frames import batch, produce


def _receive(connection: socket.socket) -> None:
    wanted = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    while wanted > 0:
        got = len(connection.recv(wanted))
        if not got:
            raise ConnectionError("the broker closed the connection")
        wanted -= got


def main() -> None:
    host, port, topic = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    request = produce(topic, 0, batch(1, 100), 1)
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    os.set_blocking(0, False)
    lines: list[str] = []
    while True:
        begin = time.monotonic()
        connection.sendall(request)
        _receive(connection)
        lines.append(f"{begin:.6f} {time.monotonic() - begin:.6f}\n")
        try:
            if os.read(0, 1) == b"":
                break
        except BlockingIOError:
            pass
        time.sleep(0.001)
    sys.stdout.writelines(lines)


if __name__ == "__main__":
    main()
