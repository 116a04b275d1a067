"""CPU per request of a single broker and of several workers, from one kind of load: `python -m bench.workers_speed`.

Each worker leads as many partitions as the load has connections to it (`--connections`), and a C generator for each
worker sends one-record produce requests in a closed loop.  CPU is the user and system time of all that serve, by /proc
over the window.  All hosts are started once, rounds are interleaved, figures are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench import frames
from bench.native_build import load_generator
from kbroker.testing import KafkaBroker
from kbroker.testing.ports import free_port

TICKS = os.sysconf("SC_CLK_TCK")
RECORD_BYTES = 100


class Host(KafkaBroker):
    """A broker, or several workers."""

    def __init__(self, directory: Path, count: int) -> None:
        super().__init__(directory, port=free_port(count))
        self.count = count

    def command(self) -> list[str]:
        """With workers where there are several."""
        return [*super().command(), "--workers", str(self.count)]

    def pids(self) -> list[int]:
        """The processes that serve."""
        found = []
        for number in range(1, self.count + 1):
            directory = self.data_dir if number == 1 else self.data_dir / "workers" / str(number)
            found.append(int((directory / ".lock").read_text()))
        return found

    def cpu_seconds(self) -> float:
        """User and system time of all that serve."""
        total = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS


def measured(host: Host, connections: int, seconds: float, rate: str, loaded: int) -> tuple[float, float]:
    """(µs of CPU for a request, requests a second)."""
    topic = f"speed-{time.monotonic_ns()}"
    partitions = connections * host.count
    host.create_topic(topic, partitions)
    leaders = leaders_of(host, topic)
    batch = frames.batch(1, RECORD_BYTES)
    running = []
    with ExitStack() as stack:
        files = []
        for number in range(1, min(host.count, loaded) + 1):
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="bench-frames-"))
            led = [index for index, leader in leaders.items() if leader == number]
            file.writelines(frames.produce(topic, index, batch, 1) for index in led)
            file.flush()
            files.append(file)
        before = host.cpu_seconds()
        for number, file in enumerate(files, 1):
            argv = [str(load_generator()), "closed", "--host", "127.0.0.1", "--port", str(host.port + number - 1)]
            argv += ["--frames", file.name, "--pid", str(host.pids()[number - 1]), "--connections", str(connections)]
            argv += ["--depth", "1", "--seconds", str(seconds), "--warm", "0"]
            argv += ["--check-at", str(frames.produce_layout(topic).error_at), *rate.split()]
            running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        answers = [json.loads(each.communicate()[0]) for each in running]
        used = host.cpu_seconds() - before
    requests = sum(each["requests"] for each in answers)
    return used / requests * 1e6, requests / max(each["seconds"] for each in answers)


def leaders_of(host: Host, topic: str) -> dict[int, int]:
    """Who leads each partition, once all are led."""
    while True:
        found = host.admin.list_topics(topic, timeout=30).topics[topic].partitions
        leaders = {index: each.leader for index, each in found.items()}
        if leaders and min(leaders.values()) > 0:
            return leaders
        time.sleep(0.05)


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,3,4")
    parser.add_argument("--connections", type=int, default=25, help="to each worker")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--loaded", type=int, default=256, help="how many of the workers have a load")
    parser.add_argument("--more", default="", help="more options of the generator")
    options = parser.parse_args()
    counts = [int(each) for each in options.workers.split(",")]
    found: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    with ExitStack() as stack:
        hosts = {}
        for count in counts:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            hosts[count] = Host(folder, count)
            stack.callback(hosts[count].close)
            hosts[count].spawn()
            wait_until_ready(hosts[count])
        for _ in range(options.rounds):
            for count, host in hosts.items():
                found[count].append(measured(host, options.connections, options.seconds, options.more, options.loaded))
    for count, rows in found.items():
        cpu, rate = (statistics.median(each) for each in zip(*rows, strict=True))
        print(f"{count} workers: {cpu:.1f} µs, {rate:,.0f}/s   {[round(each, 1) for each, _ in rows]}")


def wait_until_ready(host: Host) -> None:
    """Until /readyz says so."""
    from urllib.error import URLError
    from urllib.request import urlopen

    while True:
        try:
            with urlopen(f"{host.metrics_url}/readyz", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.05)


if __name__ == "__main__":
    main()
