"""Where the workers of a host are: ids, ports and directories, worked out from the settings of one broker.

    worker 1      the broker of the settings itself: node.id, listeners and log.dirs as they are
    worker K      node.id + K - 1; each port K - 1 higher (0 stays 0); log directories <log.dir>/workers/K

So a directory of a single broker is that of worker 1, and a host may have more workers with each start.  `workers` is
no name of a partition's directory, so worker 1 leaves it alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.config.listener import Listener

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

FOLDER = "workers"
MOST_WORKERS = 256
LAST_PORT = 65_535
ONE_REPLICA = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
"""What is 1 among workers unless it is set: copies on the same disks cost much and protect from little."""


class WorkerSlotError(ValueError):
    """Settings that leave no place for so many workers; the text names them."""


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """A worker's slot: the `number`th, from 1, of `count`.

    `address` is the abstract Unix socket of the controller, with its @; `descriptor` that socket, which worker 1 has.
    """

    number: int
    count: int
    address: str
    descriptor: int = -1

    @property
    def is_controller(self) -> bool:
        """Whether this worker is the controller."""
        return self.number == 1

    @property
    def metrics_socket(self) -> str:
        """Where the worker has its metrics for the supervisor: an abstract Unix socket."""
        return f"{self.address}-{self.number}"

    def text(self) -> str:
        """For a command line; `parse` reads it."""
        return f"{self.number}/{self.count}{self.address}:{self.descriptor}"

    @staticmethod
    def parse(text: str) -> WorkerSlot:
        """A slot from its text.  ValueError."""
        numbers, _, address = text.partition("@")
        name, _, descriptor = address.rpartition(":")
        number, _, count = numbers.partition("/")
        return WorkerSlot(int(number), int(count), f"@{name}", int(descriptor))

    def others(self, node_id: int) -> set[int]:
        """The ids of the other workers; `node_id`: this one's."""
        first = node_id - self.number + 1
        return set(range(first, first + self.count)) - {node_id}


def worker_count(config: BrokerConfig) -> int:
    """How many workers the settings ask for; `auto` is the processors that this process may use."""
    text = str(config.get("kbroker.workers"))
    return len(os.sched_getaffinity(0)) if text == "auto" else int(text)


def check_count(config: BrokerConfig, count: int) -> None:
    """WorkerSlotError where so many workers cannot be, or others hold partitions that would be missing."""
    worker_settings(config, count, count)
    held = workers_with_partitions(config.log_dirs, count)
    if held:
        total = sum(held.values())
        named = ", ".join(map(str, held))
        raise WorkerSlotError(
            f"{total} replicas of partitions are in the directories of worker {named} (below {config.log_dirs[0]}/"
            f"{FOLDER}), and would be missing with kbroker.workers={count}: start with --workers {max(held)}, and move "
            "them away first (kbroker cluster drain) if it is to be fewer"
        )


def worker_directory(log_dir: str, number: int) -> str:
    """The log directory of a worker in one of `log.dirs`."""
    return log_dir if number == 1 else str(Path(log_dir) / FOLDER / str(number))


def worker_settings(config: BrokerConfig, number: int, count: int) -> dict[str, str]:
    """The settings in which a worker differs from the host.  WorkerSlotError where there is no room."""
    if not 1 <= count <= MOST_WORKERS:
        raise WorkerSlotError(f"kbroker.workers={count}: there can be 1 to {MOST_WORKERS}")
    if count > 1 and (config.get("zookeeper.connect") or config.is_kraft_broker):
        other = "zookeeper.connect" if config.get("zookeeper.connect") else "process.roles=broker"
        raise WorkerSlotError(
            f"kbroker.workers and {other} do not go together: in a cluster of several hosts each broker of a host is "
            "started by itself, with settings of its own"
        )
    _check_ports(config.listeners, count)
    found = {name: "1" for name in ONE_REPLICA if name not in config.explicit}
    if number == 1:
        return found
    found["node.id"] = str(config.node_id + number - 1)
    if "broker.id" in config.explicit:
        found["broker.id"] = found["node.id"]
    found["listeners"] = ",".join(str(shifted(each, number)) for each in config.listeners)
    if config.advertised_listeners:
        found["advertised.listeners"] = ",".join(str(shifted(each, number)) for each in config.advertised_listeners)
    found["log.dirs"] = ",".join(worker_directory(each, number) for each in config.log_dirs)
    return found


def shifted(listener: Listener, number: int) -> Listener:
    """A listener of the host as a worker has it."""
    return listener._replace(port=listener.port and listener.port + number - 1)


def _check_ports(listeners: list[Listener], count: int) -> None:
    taken: dict[int, list[Listener]] = {}
    for listener in listeners:
        if not listener.port:
            continue
        if listener.port + count - 1 > LAST_PORT:
            raise WorkerSlotError(f"{listener} and {count} workers: port {listener.port + count - 1} does not exist")
        for port in range(listener.port, listener.port + count):
            for other in taken.get(port, ()):
                if not (other.host and listener.host) or other.host == listener.host:
                    raise WorkerSlotError(
                        f"{other} and {listener} are too close for {count} workers, which have ports that follow each "
                        f"other: both would have {port}"
                    )
            taken.setdefault(port, []).append(listener)


def workers_with_partitions(log_dirs: list[str], count: int) -> dict[int, int]:
    """Workers above `count` whose directories hold partitions, and how many: a start without them would lose those.

    WorkerSlotError where a directory is another user's, who alone may look into it.
    """
    found: dict[int, int] = {}
    for log_dir in log_dirs:
        try:
            _count_partitions(Path(log_dir) / FOLDER, count, found)
        except PermissionError as error:
            from kbroker.storage.directories.access import log_directory_refused

            folder = Path(error.filename)
            is_closed_above = folder == Path(log_dir) / FOLDER and not os.access(log_dir, os.X_OK)
            raise WorkerSlotError(log_directory_refused(log_dir if is_closed_above else str(folder))) from None
    return {number: held for number, held in sorted(found.items()) if held}


def _count_partitions(folder: Path, count: int, found: dict[int, int]) -> None:
    """Add the partitions of one log directory's workers.  PermissionError."""
    if not folder.is_dir():
        return
    for each in folder.iterdir():
        if each.name.isdigit() and int(each.name) > count:
            held = sum(1 for entry in each.iterdir() if entry.is_dir() and entry.name.rpartition("-")[2].isdigit())
            found[int(each.name)] = found.get(int(each.name), 0) + held
