"""What a broker says of its cluster, asked so that the asking costs next to nothing: Metadata v1, topic by topic.

A client library asks for everything each time; with 10,000 partitions that keeps a core of the machine busy, which the
brokers under test then miss.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bench import frames
from bench.admin import Admin
from bench.brokers import Broker


class _Reader:
    """A cursor over an answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 4  # behind the correlation id

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(f">{kind}", self._data, self._at)
        self._at += struct.calcsize(f">{kind}")
        return int(value)

    def string(self) -> str:
        size = max(0, self.number("h"))
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def numbers(self) -> list[int]:
        count = self.number("i")
        self._at += 4 * count
        return list(struct.unpack_from(f">{count}i", self._data, self._at - 4 * count))


class Told:
    """One answer: the ids of the brokers, the controller, and the leaders of each topic's partitions."""

    def __init__(self, data: bytes) -> None:
        read = _Reader(data)
        self.brokers: set[int] = set()
        for _ in range(read.number("i")):
            self.brokers.add(read.number("i"))
            read.string()
            read.number("i")
            read.string()
        self.controller = read.number("i")
        self.leaders: dict[str, list[int]] = {}
        for _ in range(read.number("i")):
            read.number("h")
            leaders = self.leaders.setdefault(read.string(), [])
            read.number("b")
            for _ in range(read.number("i")):
                read.number("h")
                read.number("i")
                leaders.append(read.number("i"))
                read.numbers()
                read.numbers()


class Survivor:
    """A broker that is to learn that another is gone."""

    def __init__(self, broker: Broker, gone: int, topics: Sequence[str], partitions: int) -> None:
        self._admin = Admin(broker.host, broker.port)
        self._gone = gone
        self._left = list(topics)
        self._partitions = partitions
        self._knows_brokers = False

    def _ask(self, topics: Sequence[str]) -> Told:
        return Told(self._admin.ask(frames.cluster_metadata(topics)))

    def knows(self) -> bool:
        """Whether it names another controller, and for every partition a leader that is there."""
        if not self._knows_brokers:
            told = self._ask([])
            self._knows_brokers = self._gone not in told.brokers and told.controller not in (self._gone, -1)
        return self._knows_brokers and self.knows_leaders()

    def knows_leaders(self) -> bool:
        """Whether it names for every partition a leader that is there."""
        while self._left and self._is_led(self._left[-1]):
            self._left.pop()
        return not self._left

    @property
    def is_through(self) -> bool:
        """Whether it did when it was asked last."""
        return not self._left

    def has_new_leader(self, topic: str) -> bool:
        """Whether it names a leader that is there for a topic's first partition."""
        return self._ask([topic]).leaders[topic][0] not in (self._gone, -1)

    def _is_led(self, topic: str) -> bool:
        leaders = self._ask([topic]).leaders[topic]
        return len(leaders) == self._partitions and not {self._gone, -1} & set(leaders)

    def close(self) -> None:
        """Ask nothing any more."""
        self._admin.__exit__()
