"""TLS beside Apache Kafka: `python -m bench.tls_speed [--only kbroker] [--seconds 3] [--rounds 2]`.

TLS 1.3 with TLS_AES_128_GCM_SHA256 and an ECDSA certificate on both sides, the same load from the same program, in
turns.  For each cell: requests each second, and the broker's CPU for each request or GB.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

from bench import brokers, frames
from bench.admin import Admin
from bench.native_build import tls_load_generator
from kbroker.testing.ports import free_port

CIPHER = "TLS_AES_128_GCM_SHA256"
PASSWORD = "secret-of-the-bench"


class Cell(NamedTuple):
    """`kind`: produce or fetch; the size is of a request's or an answer's records."""

    name: str
    kind: str
    connections: int
    records: int
    value_bytes: int


CELLS = (
    Cell("one record by 50", "produce", 50, 1, 100),
    Cell("150 x 100 B by 16", "produce", 16, 150, 100),
    Cell("1 MB by 16", "produce", 16, 10, 100_000),
    Cell("fetch 16 KB by 16", "fetch", 16, 1, 16_000),
    Cell("fetch 1 MB by 16", "fetch", 16, 10, 100_000),
    Cell("handshakes by 8", "handshakes", 8, 0, 0),
)


def certificates(folder: pathlib.Path) -> dict[str, str]:
    """The broker's settings of TLS, with a store that is made here."""
    key, chain, store = (folder / name for name in ("key.pem", "chain.pem", "store.p12"))
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -subj /CN=localhost"
    subprocess.run([*make.split(), "-keyout", key, "-out", chain], check=True, capture_output=True)
    pack = ["openssl", "pkcs12", "-export", "-inkey", key, "-in", chain, "-out", store, "-passout", f"pass:{PASSWORD}"]
    subprocess.run(pack, check=True, capture_output=True)
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.enabled.protocols": "TLSv1.3",
    }


def request_of(cell: Cell, broker: brokers.Broker, folder: pathlib.Path) -> str:
    """The file with the cell's request, and a topic that it is for."""
    if cell.kind == "handshakes":
        return "handshakes"
    topic = "".join(each if each.isalnum() else "-" for each in cell.name)
    batch = frames.batch(cell.records, cell.value_bytes)
    produce = frames.produce(topic, 0, batch, 1)
    with Admin(broker.host, broker.port) as admin:
        admin.create_topic(topic, 1, {"retention.bytes": str(512 << 20), "segment.bytes": str(128 << 20)})
        if cell.kind == "fetch":
            for _ in range(4):
                admin.ask(produce)
    data = produce if cell.kind == "produce" else frames.fetch(topic, 0, len(batch))
    path = folder / topic
    path.write_bytes(data)
    return str(path)


def measure(cell: Cell, broker: brokers.Broker, port: int, seconds: float, folder: pathlib.Path) -> tuple[float, float]:
    """Requests each second, and microseconds of the broker's CPU for each."""
    words = [str(port), str(cell.connections), str(seconds), request_of(cell, broker, folder), CIPHER]
    with subprocess.Popen([tls_load_generator(), *words], stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        load.stdout.readline()
        before = broker.cpu_seconds()
        requests, _, taken = load.stdout.readline().split()
        cpu = broker.cpu_seconds() - before
    return int(requests) / float(taken), cpu / max(1, int(requests)) * 1e6


def main() -> int:
    """Run the cells and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("kbroker", "kafka"))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    names = [options.only] if options.only else ["kbroker", "kafka"]
    print(f"{'':22} {'':8} {'requests/s':>12} {'CPU us each':>12}")
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as text:
        folder = pathlib.Path(text)
        settings = certificates(folder)
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for _ in range(options.rounds):
            for name in names:
                port = free_port()
                extra = settings | {brokers.MORE_LISTENERS: f",SSL://127.0.0.1:{port}"}
                broker = brokers.start(name, "", settings=extra)
                try:
                    for cell in CELLS:
                        found.setdefault((cell.name, name), []).append(
                            measure(cell, broker, port, options.seconds, folder)
                        )
                finally:
                    broker.stop()
        for (cell_name, name), rows in sorted(found.items()):
            rate, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"{cell_name:22} {name:8} {rate:12,.0f} {cpu:12,.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
