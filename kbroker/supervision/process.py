"""The process of a broker, or of a controller: signals, the loop, how it ends, the exit code.

Exit codes: 0 stopped in order, 1 could not start or failed, as when the last log directory, or the one with the
metadata, gives I/O errors.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kbroker import __version__, log_output
from kbroker.cluster.member import StartInterruptedError
from kbroker.errors import KafkaError
from kbroker.host.halt import exit_later
from kbroker.host.scheduling import process_started
from kbroker.host.service_manager import service_manager
from kbroker.host.stop_signals import StopSignals
from kbroker.network.listener import BindError
from kbroker.network.ports_in_use import why_not_listened
from kbroker.storage.directories.log_dirs import LogDirError
from kbroker.storage.recovery.recovery_progress import LoadingInterruptedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.assembly.node import Node
    from kbroker.cluster.workers.worker_slot import WorkerSlot
    from kbroker.config import BrokerConfig
    from kbroker.metrics.readiness import Readiness

    MakeServer = Callable[[BrokerConfig, asyncio.AbstractEventLoop, asyncio.Event], "Server"]

logger = logging.getLogger("kbroker.broker")


class Server(Protocol):
    """What a process runs: a `Broker` or a `ControllerNode`."""

    @property
    def node(self) -> Node:
        """Its listeners, metrics and tasks."""

    @property
    def readiness(self) -> Readiness:
        """How far it is."""

    @property
    def directories(self) -> list[str]:
        """The paths of what it keeps data in."""

    @property
    def is_judging(self) -> bool:
        """Whether a thread still works for a client that may be gone."""

    async def start(self) -> None:
        """Bring everything up."""

    async def stop(self) -> None:
        """End in order."""

    async def give_up(self) -> None:
        """End a start that failed or was ended."""


async def _serve(config: BrokerConfig, started: float, signals: StopSignals, make: MakeServer) -> int:
    stopping = asyncio.Event()
    signals.attach(asyncio.get_running_loop(), stopping.set)
    if stopping.is_set():
        return 0
    status, judging = await _serve_until(stopping, config, started, make)
    signals.finish()
    if status or judging or asyncio.all_tasks() - {asyncio.current_task()}:
        # A thread still runs a codec over a batch that no client waits for any more, or waits for a disk that failed.
        logging.shutdown()
        os._exit(status)
    exit_later(status)
    return status


async def _serve_until(
    stopping: asyncio.Event, config: BrokerConfig, started: float, make: MakeServer
) -> tuple[int, bool]:
    """(the exit code, whether a thread still judges a batch)."""
    loop = asyncio.get_running_loop()
    if (why := why_not_listened(config.every_listener)) is not None:
        logger.error("cannot start: %s", why)
        return 1, False
    try:
        broker = make(config, loop, stopping)
    except ValueError as error:
        logger.error("cannot start: %s", error)
        return 1, False
    try:
        if (manager := service_manager()) is not None:
            manager.follow(broker.readiness, loop)
        await broker.start()
    except LoadingInterruptedError:
        await broker.give_up()
        logger.info("stopped while logs were being loaded; the next start goes on")
        return 0, False
    except StartInterruptedError:
        await broker.give_up()
        logger.info("stopped while it waited for its cluster")
        return int(broker.node.failed), False
    except (LogDirError, KafkaError, BindError, OSError, ValueError) as error:
        logger.error("cannot start: %s", error)
        logger.debug("because of", exc_info=error)
        await broker.give_up()
        return 1, False
    broker.node.garbage.start()
    if not stopping.is_set():
        logger.info("%s", _ready_line(broker, started))
    await stopping.wait()
    logger.info("stopping")
    try:
        await broker.stop()
    except Exception:
        if not broker.node.failed:
            raise
        logger.exception("the broker could not be stopped in order")
    logger.info("stopped")
    return (1 if broker.node.failed else 0), broker.is_judging


def _ready_line(broker: Server, started: float) -> str:
    addresses = ", ".join(f"{each.name}://{each.host or '*'}:{each.port}" for each in broker.node.listeners.all)
    directories = ", ".join(broker.directories)
    served = broker.node.metrics
    metrics = f", metrics on port {served.port}" if served is not None and served.port else ""
    if metrics and served is not None and served.sites:
        from kbroker.metrics.listener_address import console_address  # The metrics' server has loaded it.

        metrics += f", console on {console_address(broker.node.config.get('metrics.listener'), served.port)}"
    return (
        f"kbroker {__version__} ready on {addresses}{metrics}, data in {directories}, "
        f"after {(time.time() - started) * 1000:.0f} ms"
    )


def _maker(config: BrokerConfig, slot: WorkerSlot | None) -> MakeServer:
    """What makes what the settings ask for; a controller loads nothing of a broker's."""
    if config.is_controller_alone:
        from kbroker.assembly.controller_node import ControllerNode

        return ControllerNode
    from kbroker.assembly.membership.choice import membership_of
    from kbroker.broker import Broker

    return partial(Broker, make_membership=partial(membership_of, slot=slot))


def run(config: BrokerConfig, slot: WorkerSlot | None = None) -> int:
    """Serve until a signal ends it; the exit code.  `slot`: of a worker."""
    make = _maker(config, slot)
    signals = StopSignals()
    import uvloop

    worker = None if slot is None else slot.number
    log_output.setup(config.get("kbroker.log.format"), config.get("kbroker.log.level"), worker=worker)
    for warning in config.warnings:
        logging.getLogger("kbroker.config").warning("%s", warning)
    return uvloop.run(_serve(config, process_started(), signals, make))
