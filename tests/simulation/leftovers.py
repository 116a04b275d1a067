"""What a broker has of connections when all of its clients are gone, and what it holds when it is no more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.broker import Broker
    from tests.simulation.loop import Process
    from tests.simulation.sockets import Network


def leftovers(broker: Broker, process: Process, network: Network) -> dict[str, int]:
    """All of it has to be 0."""
    pool, listeners = broker.node.listeners.pool, broker.node.listeners.all
    # Those of other brokers, which each have one fetch that may wait.
    served = [
        each for each in network.ends if each.process is process and each.descriptor is not None and not each.is_local
    ]
    others = sum(each.protocol is not None for each in served)
    return {
        "connections": sum(len(each.endpoint.connections) for each in listeners) - others,
        "addresses": sum(len(each._addresses) for each in listeners) - others,
        "waiting fetches": max(0, len(broker.services.replica_manager.purgatory) - others),
        "waiting for memory": pool.waiting_count,
        "bytes in flight": pool.used_bytes,
        "writers": 0 if others else network.writers_of(process),
        "tasks": 0 if others else sum(len(each._tasks) for each in listeners),
    }


def dispose(broker: Broker) -> None:
    """Give back what a broker holds that is no more."""
    try:
        broker.release()
    except Exception:
        logging.getLogger(__name__).debug("a broker that failed cannot be closed", exc_info=True)


__all__ = ["dispose", "leftovers"]
