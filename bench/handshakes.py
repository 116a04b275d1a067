"""What 500 clients that shake hands at once cost a client that is connected: needs nothing but this machine.

    python -m bench.handshakes                             # five rounds

A client under TLS asks ApiVersions again and again; 500 others, a process of the lowest priority, connect and then
begin their handshakes together.  For each round: how long the answers took before and meanwhile, in ms, and how long
all handshakes took.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kbroker.testing.broker import KafkaBroker
from kbroker.testing.security import Security

CLIENTS = 500
ASK = struct.pack(">ihhih", 10, 18, 0, 1, -1)
QUIET_SECONDS = 2.0


def _ask(connection: ssl.SSLSocket) -> float:
    """Seconds until the answer."""
    begin = time.perf_counter()
    connection.sendall(ASK)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    _exactly(connection, size)
    return time.perf_counter() - begin


def _exactly(connection: ssl.SSLSocket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise SystemExit("the broker has hung up")
        found += more
    return found


def _shake_hands(port: int, authority: str) -> None:
    """The others: connect all, say so, and begin together when told to; print the seconds it took."""
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = False
    waiting = selectors.DefaultSelector()
    sockets = []
    for _ in range(CLIENTS):
        plain = socket.create_connection(("127.0.0.1", port))
        plain.setblocking(False)
        sockets.append(context.wrap_socket(plain, do_handshake_on_connect=False))
    print("connected", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    left = 0
    for each in sockets:
        left += not _goes_on(each, waiting)
    while left:
        for key, _ in waiting.select(10):
            assert isinstance(key.fileobj, ssl.SSLSocket)
            waiting.unregister(key.fileobj)
            left -= _goes_on(key.fileobj, waiting)
    print(time.perf_counter() - begin, flush=True)


def _goes_on(connection: ssl.SSLSocket, waiting: selectors.BaseSelector) -> bool:
    """Whether its handshake is complete."""
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        waiting.register(connection, selectors.EVENT_READ)
    except ssl.SSLWantWriteError:
        waiting.register(connection, selectors.EVENT_WRITE)
    else:
        return True
    return False


def _round(broker: KafkaBroker, security: Security, folder: Path) -> dict[str, float]:
    context = security.context(folder)
    with socket.create_connection(("127.0.0.1", broker.port)) as plain:
        connection = context.wrap_socket(plain, server_hostname="localhost")
        argv = ["nice", "-n", "19", sys.executable, "-m", "bench.handshakes", "--shake", str(broker.port)]
        others = subprocess.Popen(
            [*argv, str(folder / "ca.pem")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert others.stdin is not None and others.stdout is not None
        assert others.stdout.readline() == "connected\n"
        until = time.perf_counter() + QUIET_SECONDS
        before = []
        while time.perf_counter() < until:
            before.append(_ask(connection))
        others.stdin.write("go\n")
        others.stdin.flush()
        ended = selectors.DefaultSelector()
        ended.register(others.stdout, selectors.EVENT_READ)
        meanwhile = []
        while not ended.select(0):
            meanwhile.append(_ask(connection))
        seconds = float(others.stdout.readline())
        others.wait(10)
    return {
        "before_p99_ms": round(statistics.quantiles(before, n=100)[98] * 1e3, 2),
        "before_max_ms": round(max(before) * 1e3, 2),
        "meanwhile_p50_ms": round(statistics.median(meanwhile) * 1e3, 2),
        "meanwhile_p99_ms": round(statistics.quantiles(meanwhile, n=100)[98] * 1e3, 2),
        "meanwhile_max_ms": round(max(meanwhile) * 1e3, 2),
        "all_handshakes_s": round(seconds, 2),
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shake", nargs=2, metavar=("PORT", "CA"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.shake:
        _shake_hands(int(options.shake[0]), options.shake[1])
        return
    security = Security("SSL", acls=False)
    with tempfile.TemporaryDirectory(prefix="bench-handshakes-") as text:
        folder = Path(text)
        with KafkaBroker(folder, {"metrics.listener": "none"}, security=security) as broker:
            for _ in range(options.rounds):
                print(json.dumps(_round(broker, security, folder / "tls")), flush=True)


if __name__ == "__main__":
    main()
