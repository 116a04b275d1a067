"""A broker with an authorizer, on a thread of the test, and the authorizer of `refused_requests`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from kbroker.broker import Broker
from kbroker.config import BrokerConfig
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.principal import Principal
from tests.gate.refused_requests import BLIND, SECRET, SHOWN
from tests.gate.refused_world import OTHER_ADDRESS
from tests.ports import free_port

# Whether a client at that address may do that to the resource of that kind and name.
Rule = Callable[[str, Operation, ResourceKind, str], bool]


def everything(host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
    """The rule while the world is made."""
    return True


def no_secrets(host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
    """The rule of `refused_requests`."""
    if host == OTHER_ADDRESS:
        return False
    if kind is ResourceKind.CLUSTER:
        return operation is Operation.CLUSTER_ACTION
    if kind is ResourceKind.TOPIC and name.startswith(BLIND):
        return operation is not Operation.DESCRIBE_CONFIGS
    if kind is ResourceKind.TOPIC and name.startswith(SHOWN):
        return operation is not Operation.CREATE
    return not name.startswith(SECRET)


class Ruled:
    """An authorizer that goes by one rule for all clients."""

    def __init__(self) -> None:
        self.rule: Rule = everything
        self._changed: list[Callable[[], None]] = []

    def is_authorized(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> bool:
        return self.rule(host, operation, kind, name)

    def is_authorized_for_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        return self.rule(host, operation, kind, "any")

    def explain(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> str:
        return "a rule of the test"

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def change(self, rule: Rule) -> None:
        """Go by another rule."""
        self.rule = rule
        self.tell()

    def tell(self) -> None:
        for changed in self._changed:
            changed()


class GuardedBroker:
    """See the module.  `by_settings`: its authorizer is the one that its settings ask for."""

    def __init__(self, folder: Path, settings: dict[str, str], *, by_settings: bool = False) -> None:
        self.port = free_port()
        self.rules = Ruled()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        own = {"log.dirs": str(folder), "listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "metrics.listener": "none"}
        config = BrokerConfig.from_mapping({**own, **settings})
        self._broker = Broker(config, self._loop, authorizer=None if by_settings else self.rules)

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self._thread.start()
        self._run(self._broker.start())

    def change(self, rule: Rule) -> None:
        """Have it go by another rule from now on."""

        async def change() -> None:
            self.rules.change(rule)

        self._run(change())

    def stop(self) -> None:
        """Stop it and its thread."""
        self._run(self._broker.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
