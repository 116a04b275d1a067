"""CPU and memory of the brokers over time, read from /proc twice a second in a thread."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from bench.brokers import Broker

PERIOD_SECONDS = 0.5
#: Points kept per broker: of more, every second one is dropped.
MOST_POINTS = 2_000

#: Seconds since the sampler began, resident MB, CPU seconds.
Point = tuple[float, float, float]


class Sampler:
    """Follows the brokers that it is told of until they are gone."""

    def __init__(self) -> None:
        self.points: dict[str, list[Point]] = {}
        self._brokers: dict[str, Broker] = {}
        self._begin = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._begin

    def follow(self, broker: Broker) -> None:
        if broker.pid:
            self._brokers[broker.name] = broker

    def forget(self, broker: Broker) -> None:
        self._brokers.pop(broker.name, None)

    def sample(self) -> None:
        """One point for each broker that lives."""
        for name, broker in list(self._brokers.items()):
            try:
                point = (round(self.seconds(), 2), round(broker.resident_bytes() / 1e6, 1), broker.cpu_seconds())
            except (OSError, IndexError, ValueError):
                continue
            points = self.points.setdefault(name, [])
            points.append(point)
            if len(points) > MOST_POINTS:
                del points[1::2]

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            self.sample()
