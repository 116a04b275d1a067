"""CPU, memory and metrics of the broker while a replay runs, taken by the driver once a second.

CPU and memory are those of the process that listens on the bootstrap port, where that is on this machine; a broker that
is restarted is found again.  Metrics are a Prometheus page: each family's sum over its labels, without histograms'
buckets.  What cannot be read at some second is missing there, not 0.
"""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kbroker.client.address import parse_bootstrap

if TYPE_CHECKING:
    import psutil

PACE_S = 1.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
SAMPLE_SCHEMA = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("cpu_percent", pa.float64()),
        pa.field("rss_bytes", pa.int64()),
        pa.field("metrics", pa.map_(pa.string(), pa.float64())),
    ]
)


class Sampler:
    """Takes samples from `start` to `stop`; `write` puts them into a Parquet file."""

    def __init__(self, bootstrap: str, metrics_url: str | None) -> None:
        host, port = parse_bootstrap(bootstrap)[0]
        self._port = port if host in _LOOPBACK else None
        self._url = metrics_url
        self._rows: list[dict[str, object]] = []
        self._ended = threading.Event()
        self._process: psutil.Process | None = None
        self._thread = threading.Thread(target=self._run, name="replay-samples", daemon=True)

    def start(self) -> None:
        """Begin to sample, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def write(self, path: Path) -> None:
        """Write the samples as Parquet."""
        columns = {name: [row[name] for row in self._rows] for name in SAMPLE_SCHEMA.names}
        pq.write_table(pa.Table.from_pydict(columns, schema=SAMPLE_SCHEMA), path)

    def _run(self) -> None:
        while True:
            cpu, rss = self._usage()
            metrics = scrape(self._url) if self._url is not None else {}
            row = {"time_us": time.time_ns() // 1000, "cpu_percent": cpu, "rss_bytes": rss}
            self._rows.append({**row, "metrics": list(metrics.items())})
            if self._ended.wait(PACE_S):
                return

    def _usage(self) -> tuple[float | None, int | None]:
        import psutil

        if self._port is None:
            return None, None
        try:
            if self._process is None or not self._process.is_running():
                self._process = self._find()
                if self._process is None:
                    return None, None
                # The first look has nothing to compare with.
                self._process.cpu_percent()
                return None, int(self._process.memory_info().rss)
            return float(self._process.cpu_percent()), int(self._process.memory_info().rss)
        except psutil.Error:
            self._process = None
            return None, None

    def _find(self) -> psutil.Process | None:
        import psutil

        for one in psutil.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr.port == self._port and one.pid:
                return psutil.Process(one.pid)
        return None


def scrape(url: str) -> dict[str, float]:
    """The families of a Prometheus page, each summed over its labels; nothing when the page cannot be read."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        with urllib.request.urlopen(url, timeout=2) as page:
            text = page.read().decode()
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.name.endswith(("_bucket", "_created")):
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
    except urllib.error.HTTPError as error:
        error.close()
        return {}
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    return found
