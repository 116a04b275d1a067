"""The console of a broker, put together from its settings and parts when the first viewer comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from kbroker.assembly.membership.settings import inter_broker_listener
from kbroker.metrics.http_guard import names_of
from kbroker.metrics.listener_address import parse_listener

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.console.site import ConsoleSite
    from kbroker.handlers.services import Services
    from kbroker.metrics.http_messages import Answer, BodyLimits, Request, Sites
    from kbroker.metrics.readiness import Readiness
    from kbroker.metrics.sources import Sources
    from kbroker.network.listener import Listener
    from kbroker.network.listener_security import ListenerSecurity
    from kbroker.security.authorizer import Authorizer

SITE = "console"


def bodies_of(config: BrokerConfig) -> BodyLimits:
    """How many bytes a body for the console may have: none while it only reads."""
    return {SITE: _body_limit} if config.get("kbroker.console.manage") else {}


def _body_limit(path: str) -> int:
    from kbroker.console.manage.change_requests import body_limit  # The console is imported with its first viewer.

    return body_limit(path)


class Console:
    """The site of a broker; `services()` gives the parts of one that is ready."""

    def __init__(
        self,
        config: BrokerConfig,
        sources: Sources,
        readiness: Readiness,
        services: Callable[[], Services],
        listeners: Sequence[Listener],
        authorizer: Authorizer | None,
        inside: Callable[[str, ListenerSecurity], Listener],
        *,
        knows_viewers: bool = False,
    ) -> None:
        """`inside` makes a listener without a port, for what viewers do as clients."""
        self._inside = inside
        self._config = config
        self._sources = sources
        self._readiness = readiness
        self._services = services
        self._listeners = listeners
        self._authorizer = authorizer
        self._knows_viewers = knows_viewers
        self._site: ConsoleSite | None = None

    def sites(self) -> Sites:
        """What the metrics listener serves besides its own: the console, unless it is turned off."""
        return {SITE: self} if self._config.get("kbroker.console.enable") else {}

    async def __call__(self, request: Request) -> Answer:
        if self._site is None:
            # Its modules cost neither time at the start nor memory without a viewer.
            await asyncio.get_running_loop().run_in_executor(None, import_module, "kbroker.console.site")
        if self._site is None:
            self._site = self._make()
        return await self._site(request)

    def _make(self) -> ConsoleSite:
        from kbroker.console import guard
        from kbroker.console.manage.change_requests import ChangeRequests
        from kbroker.console.masking import Masks
        from kbroker.console.parts import ConsoleParts
        from kbroker.console.site import ConsoleSite
        from kbroker.console.viewer_client import Inside
        from kbroker.registry.configured import display_of, registry_of

        config = self._config
        address = parse_listener(config.get("metrics.listener"))
        assert address is not None, "a request came by it"
        why_no_messages = guard.why_no_messages(
            config.get("kbroker.console.messages"),
            address[0],
            has_authorizer=self._authorizer is not None,
            knows_viewers=self._knows_viewers,
        )
        inside = Inside(self._inside, inter_broker_listener(config))
        parts = ConsoleParts(self._sources, self._readiness, self._services, self._listeners, why_no_messages, inside)
        parts.display, parts.registry = display_of(config), registry_of(config)
        parts.masks = Masks(config.get("kbroker.console.masks"))
        why_closed = guard.why_no_changes(
            address[0], has_authorizer=self._authorizer is not None, knows_viewers=self._knows_viewers
        )
        door = ChangeRequests(parts, is_open=config.get("kbroker.console.manage"), why_closed=why_closed)
        policy = config.get("kbroker.console.messages")
        for_this_machine = policy == guard.PUBLISHED and not self._knows_viewers
        return ConsoleSite(SITE, parts, names_of(config), door, for_this_machine=for_this_machine)
