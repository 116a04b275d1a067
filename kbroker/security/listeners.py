"""The security of each listener, made of the settings: plain or TLS, with SASL behind it or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbroker.security.plaintext import Plaintext
from kbroker.security.protocols import has_sasl, has_tls

if TYPE_CHECKING:
    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart
    from kbroker._fast.tls.tls_shared import TlsShared
    from kbroker.config import BrokerConfig
    from kbroker.network.listener_security import ListenerSecurity
    from kbroker.security.tls.kernel import KernelTls
    from kbroker.security.tls.listener import TlsListener
    from kbroker.security.tls.server_context import ServerContext
    from kbroker.security.tls.settings import TlsSettings

logger = logging.getLogger("kbroker.security")

STORES_INTERVAL_MS = 5_000


class ListenersSecurity:
    """What the listeners of a broker begin their connections with, `by_name`; those under TLS follow their stores."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        make_plain: Callable[[Connection], SocketPart],
        with_sasl: Callable[[str, ListenerSecurity], ListenerSecurity],
        handshake_threads: int,
    ) -> None:
        """`make_plain` makes the socket part of connections without encryption, `with_sasl(name, carrier)` wraps
        a listener's security with SASL.  Reads stores; ValueError with the reason where one cannot be used."""
        self._loop = loop
        self._shared: TlsShared | None = None
        self._kernel = ""
        self._threads = handshake_threads
        self.tls: list[TlsListener] = []
        plain = Plaintext(make_plain)
        by_name: dict[str, ListenerSecurity] = {}
        for each in config.every_listener:
            carrier = self._make_tls(config, each.name, each.protocol) if has_tls(each.protocol) else plain
            by_name[each.name] = with_sasl(each.name, carrier) if has_sasl(each.protocol) else carrier
        self.by_name: Mapping[str, ListenerSecurity] = by_name

    def _make_tls(self, config: BrokerConfig, name: str, protocol: str) -> TlsListener:
        # Python's part of TLS costs a broker without it neither time nor memory.
        from kbroker._fast.tls.tls_shared import TlsShared
        from kbroker.security.tls import library
        from kbroker.security.tls.listener import TlsError, TlsListener
        from kbroker.security.tls.principal_mapping import PrincipalMapping

        library.load()
        if self._shared is None:
            kernel, self._kernel = kernel_tls(str(config.get("kbroker.tls.kernel")))
            self._shared = TlsShared(self._loop, self._threads, kernel=kernel)
        try:
            made = TlsListener(
                name,
                _tls_settings(config, name),
                PrincipalMapping(str(config.for_listener(name, "ssl.principal.mapping.rules"))),
                self._shared,
                names_clients=not has_sasl(protocol),
            )
        except TlsError as error:
            raise ValueError(f"listener {name}: {error}") from None
        self.tls.append(made)
        return made

    # Changes

    def check(self, config: BrokerConfig) -> None:
        """ValueError where settings that were changed at run time must not be taken."""
        for each in self.tls:
            self._check(each, config)

    def begin(self, config: BrokerConfig) -> None:
        """Take what was changed while the broker ran the last time, before the first connection."""
        self._follow(config, may_change_name=True, may_change_hosts=True)

    def follow(self, config: BrokerConfig) -> None:
        """Take the settings that were changed at run time."""
        self._follow(config)

    def _follow(self, config: BrokerConfig, **may_change: bool) -> None:
        for each in self.tls:
            try:
                made = self._check(each, config, **may_change)
            except ValueError as error:
                each.failed_to_change(error)
            else:
                if made is not None:
                    each.take(made)

    def describe(self) -> None:
        """Log what the listeners under TLS speak."""
        if self.tls:
            from kbroker.security.tls import library

            logger.info("TLS by %s; %s", library.version(), self._kernel)
        for each in self.tls:
            logger.info("%s", each.describe())

    async def follow_files(self, current: Callable[[], BrokerConfig], now_ms: int) -> None:
        """Take stores whose files have changed, and warn of those that run out; to be run every few seconds."""
        for each in self.tls:
            each.warn_of_end(now_ms)
            if not await self._loop.run_in_executor(None, each.has_changed_files):
                continue
            config = current()
            reread = partial(each.check, _tls_settings(config, each.name))
            try:
                each.take(await self._loop.run_in_executor(None, partial(reread, **_may_change(config, each.name))))
            except ValueError as error:
                each.failed_to_change(error)

    @staticmethod
    def _check(listener: TlsListener, config: BrokerConfig, **may_change: bool) -> ServerContext | None:
        settings = _tls_settings(config, listener.name)
        if settings == listener.made.settings:
            return None
        return listener.check(settings, **(may_change or _may_change(config, listener.name)))

    @property
    def kernel_connections(self) -> int:
        """How many connections the kernel has encrypted for."""
        return 0 if self._shared is None else self._shared.kernel_count

    def log_suppressed(self) -> None:
        """Log how many failed handshakes were left out since the last that was logged."""
        for each in self.tls:
            each.log_suppressed()

    def close(self) -> None:
        """End the threads, after the last connection was closed."""
        if self._shared is not None:
            self._shared.close()


def kernel_tls(setting: str) -> tuple[KernelTls | None, str]:
    """The kernel's TLS, None where it is not used; and what there is to say of that."""
    from kbroker.security.tls import kernel, library

    if setting == "off":
        return None, "the kernel's is not used: kbroker.tls.kernel is off"
    if not library.tells_secrets():
        return None, "the kernel's is not used: this OpenSSL does not tell the secrets that its keys come of"
    found = kernel.probe()
    if isinstance(found, str):
        return None, f"the kernel's is not used: {found}"
    names = ", ".join(sorted(name.decode() for name in found.suites))
    return found, f"the kernel encrypts what is sent of files, by {names}"


def _tls_settings(config: BrokerConfig, name: str) -> TlsSettings:
    from kbroker.security.tls.settings import listener_tls_settings

    protocol = next(each.protocol for each in config.every_listener if each.name == name)
    return listener_tls_settings(config, name, protocol)


def _may_change(config: BrokerConfig, name: str) -> dict[str, bool]:
    return {
        "may_change_name": bool(config.for_listener(name, "ssl.allow.dn.changes")),
        "may_change_hosts": bool(config.for_listener(name, "ssl.allow.san.changes")),
    }
