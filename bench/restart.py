"""How long a restart takes until the first accepted produce, and what creating and stopping many partitions costs.

    python -m bench.restart partitions [--count 10000] [--empty] [--data FOLDER] [--rounds 3]
    python -m bench.restart unflushed [--gib 5.2] [--partitions 8] [--data FOLDER] [--rounds 3]
    python -m bench.restart growth [--gib 4] [--data FOLDER]

`partitions` creates that many, with a batch in each unless `--empty`, stops in order and starts again.  `unflushed`
writes batches of 150 records, kills the broker with SIGKILL and starts it: nothing was flushed, so all is checked.
`growth` shows that the time of such a restart follows the bytes above the recovery points: the same log, first with
none of it flushed, then with all of it flushed and a little more written.

Time counts from the start of the process to the answer of a produce without an error.  Resident memory is read right
after it.  The result is printed as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench import frames
from bench.admin import Admin, AdminError
from bench.brokers import Broker
from kbroker.testing.ports import free_port

TOPIC = "restart"
PARTITIONS_PER_TOPIC = 1_000
RECORDS, VALUE_BYTES = 150, 100
WINDOW = 32
GIB = 1 << 30

Result = dict[str, Any]


def launch(folder: pathlib.Path, port: int, settings: dict[str, str]) -> tuple[Broker, float]:
    """A broker on `folder`, and when its process was started (monotonic seconds)."""
    own = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": str(folder / "data"), "metrics.listener": "none"}
    overrides = [part for key, value in (own | settings).items() for part in ("--override", f"{key}={value}")]
    with (folder / "output").open("ab") as output:
        begin = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "kbroker.cli", "start", *overrides],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=pathlib.Path(__file__).resolve().parent.parent,
        )
    return Broker("kbroker", "127.0.0.1", port, process.pid, process=process), begin


def first_produce(broker: Broker, begin: float, topic: str) -> float:
    """Seconds from `begin` to the first produce that was answered without an error."""
    request = frames.produce(topic, 0, frames.batch(1, VALUE_BYTES), 1)
    error_at = frames.produce_layout(topic).error_at - 4
    while time.monotonic() - begin < 300:
        if broker.process is not None and broker.process.poll() is not None:
            raise SystemExit("the broker ended; see its output")
        try:
            with Admin(broker.host, broker.port) as admin:
                answer = admin.ask(request)
                if struct.unpack_from(">h", answer, error_at)[0] == 0:
                    return time.monotonic() - begin
        except (OSError, AdminError):
            pass
        time.sleep(0.002)
    raise SystemExit("no produce was accepted in 300 s")


def produce_all(broker: Broker, requests: Iterator[bytes], error_at: int) -> int:
    """Sends requests over one connection, some at once; returns how many were accepted."""
    done = waiting = 0
    with socket.create_connection((broker.host, broker.port)) as sock, sock.makefile("rb") as answers:

        def collect() -> None:
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
            if struct.unpack_from(">h", answer, error_at - 4)[0]:
                raise SystemExit("a produce was refused")

        for request in requests:
            sock.sendall(request)
            waiting += 1
            if waiting >= WINDOW:
                collect()
                waiting -= 1
                done += 1
        for _ in range(waiting):
            collect()
    return done + waiting


def stop(broker: Broker) -> float:
    """Seconds that a clean stop takes."""
    assert broker.process is not None
    begin = time.monotonic()
    broker.process.send_signal(signal.SIGTERM)
    broker.process.wait(300)
    return time.monotonic() - begin


def kill(broker: Broker) -> None:
    assert broker.process is not None
    broker.process.kill()
    broker.process.wait()


@contextmanager
def working_folder(base: pathlib.Path | None) -> Iterator[pathlib.Path]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-restart-", dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def partitions(arguments: argparse.Namespace, folder: pathlib.Path, port: int) -> Result:
    broker, begin = launch(folder, port, {})
    names = [f"{TOPIC}-{number}" for number in range(-(-arguments.count // PARTITIONS_PER_TOPIC))]
    try:
        _wait_until_ready(broker, begin)
        created = time.monotonic()
        left = arguments.count
        with Admin(broker.host, broker.port) as admin:
            for name in names:
                admin.ask(frames.create_topic(name, min(left, PARTITIONS_PER_TOPIC), {}))
                left -= PARTITIONS_PER_TOPIC
            visible = time.monotonic() - created
            while _directories(folder) < arguments.count:
                time.sleep(0.01)
        on_disk = time.monotonic() - created
        filled = 0.0
        if not arguments.empty:
            filling = time.monotonic()
            produce_all(broker, _one_each(names, arguments.count), frames.produce_layout(names[0]).error_at)
            filled = time.monotonic() - filling
        stopped = stop(broker)
        rounds, resident, stops = [], [], []
        for _ in range(arguments.rounds):
            broker, begin = launch(folder, port, {})
            rounds.append(first_produce(broker, begin, names[0]))
            resident.append(broker.resident_bytes())
            stops.append(stop(broker))
    finally:
        kill(broker)
    return {
        "partitions": arguments.count,
        "created_visible_s": round(visible, 2),
        "created_on_disk_s": round(on_disk, 2),
        "filled_s": round(filled, 2),
        "clean_stop_never_flushed_s": round(stopped, 2),
        "clean_stop_again_s": [round(each, 2) for each in stops],
        "first_produce_s": [round(each, 2) for each in rounds],
        "resident_mb": [round(each / 1e6, 1) for each in resident],
    }


def _wait_until_ready(broker: Broker, begin: float) -> None:
    while time.monotonic() - begin < 60:
        try:
            with Admin(broker.host, broker.port) as admin:
                admin.ask(frames.api_versions())
                return
        except (OSError, AdminError):
            time.sleep(0.005)
    raise SystemExit("the broker does not come up")


def _directories(folder: pathlib.Path) -> int:
    with os.scandir(folder / "data") as entries:
        return sum(1 for entry in entries if entry.name.startswith(TOPIC) and entry.is_dir())


def _one_each(names: list[str], count: int) -> Iterator[bytes]:
    records = frames.batch(10, VALUE_BYTES)
    for number in range(count):
        topic, partition = divmod(number, PARTITIONS_PER_TOPIC)
        yield frames.produce(names[topic], partition, records, 1)


def _fill(broker: Broker, count: int, size_bytes: float) -> int:
    """Writes about `size_bytes` over `count` partitions; returns the bytes."""
    records = frames.batch(RECORDS, VALUE_BYTES)
    requests = [frames.produce(TOPIC, partition, records, 1) for partition in range(count)]
    batches = max(1, int(size_bytes / len(records)))
    produce_all(broker, (requests[number % count] for number in range(batches)), frames.produce_layout(TOPIC).error_at)
    return batches * len(records)


def _killed_restarts(folder: pathlib.Path, port: int, broker: Broker, rounds: int) -> tuple[Broker, Result]:
    """SIGKILL and start, some times over: the first produce and what the broker says that it read."""
    seconds, resident = [], []
    for _ in range(rounds):
        kill(broker)
        broker, begin = launch(folder, port, {})
        seconds.append(first_produce(broker, begin, TOPIC))
        resident.append(broker.resident_bytes())
    return broker, {
        "first_produce_s": [round(each, 2) for each in seconds],
        "resident_mb": [round(each / 1e6, 1) for each in resident],
    }


def unflushed(arguments: argparse.Namespace, folder: pathlib.Path, port: int) -> Result:
    broker, begin = launch(folder, port, {})
    try:
        _wait_until_ready(broker, begin)
        with Admin(broker.host, broker.port) as admin:
            admin.create_topic(TOPIC, arguments.partitions)
        filling = time.monotonic()
        written = _fill(broker, arguments.partitions, arguments.gib * GIB)
        filled = time.monotonic() - filling
        broker, measured = _killed_restarts(folder, port, broker, arguments.rounds)
    finally:
        kill(broker)
    return {"partitions": arguments.partitions, "gb": round(written / 1e9, 2), "filled_s": round(filled, 2)} | measured


def growth(arguments: argparse.Namespace, folder: pathlib.Path, port: int) -> Result:
    broker, begin = launch(folder, port, {})
    found: Result = {}
    try:
        _wait_until_ready(broker, begin)
        with Admin(broker.host, broker.port) as admin:
            admin.create_topic(TOPIC, arguments.partitions)
        written = 0
        for share in (0.25, 0.25, 0.5):
            written += _fill(broker, arguments.partitions, arguments.gib * GIB * share)
            broker, measured = _killed_restarts(folder, port, broker, 1)
            found[f"unflushed_{written / 1e9:.2f}_gb"] = measured["first_produce_s"][0]
        found["clean_stop_s"] = round(stop(broker), 2)
        broker, begin = launch(folder, port, {})
        found["after_clean_stop"] = round(first_produce(broker, begin, TOPIC), 2)
        _fill(broker, arguments.partitions, 64e6)
        broker, measured = _killed_restarts(folder, port, broker, 1)
        found[f"flushed_{written / 1e9:.2f}_gb_and_0.06_unflushed"] = measured["first_produce_s"][0]
    finally:
        kill(broker)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="restart times of kbroker")
    parser.add_argument("what", choices=["partitions", "unflushed", "growth"])
    parser.add_argument("--count", type=int, default=10_000, help="partitions of `partitions`")
    parser.add_argument("--empty", action="store_true", help="leave them without records")
    parser.add_argument("--gib", type=float, default=5.2)
    parser.add_argument("--partitions", type=int, default=8, help="partitions of `unflushed` and `growth`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=pathlib.Path, help="folder for the data; the system's temporary one")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    run = {"partitions": partitions, "unflushed": unflushed, "growth": growth}[arguments.what]
    with working_folder(arguments.data) as folder:
        print(json.dumps(run(arguments, folder, arguments.port or free_port())))


if __name__ == "__main__":
    main()
