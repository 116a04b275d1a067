"""The listeners whose clients authenticate by SASL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from kbroker.log_output import RateLimitedLog
from kbroker.security.principal import ANONYMOUS, Session
from kbroker.security.sasl.exchange import OfferedMechanism, SaslExchange, SaslServer, SaslStats
from kbroker.security.sasl.gssapi import GssapiServer
from kbroker.security.sasl.jwks import Jwks, JwksPlan
from kbroker.security.sasl.kerberos_names import KerberosNames
from kbroker.security.sasl.mechanism import SaslError
from kbroker.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerServer
from kbroker.security.sasl.plain import PLAIN, PlainServer, PlainUsers
from kbroker.security.sasl.scram_server import ScramServer, ScramUsers, UnknownUsers
from kbroker.security.sasl.settings import (
    MechanismSettings,
    SaslSettings,
    SaslSettingsError,
    sasl_settings,
    warn_of_ignored,
)
from kbroker.security.sasl.token_check import TokenCheck
from kbroker.security.scram import BY_NAME

if TYPE_CHECKING:
    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.network.listener_security import ListenerSecurity
    from kbroker.security.sasl.mechanism import ServerMechanism

logger = logging.getLogger("kbroker.security")


class SaslListener:
    """See `ListenerSecurity`: SASL over what `carrier` makes of sockets."""

    authenticates = True

    def __init__(self, carrier: ListenerSecurity, server: SaslServer, first_frame_bytes: int) -> None:
        self._carrier = carrier
        self._server = server
        self.first_frame_bytes = first_frame_bytes

    def make_socket(self, connection: Connection) -> SocketPart:
        """The carrier's."""
        return self._carrier.make_socket(connection)

    def take(self, server: SaslServer) -> None:
        """Exchanges that begin from now on are with this one."""
        self._server = server

    def first_session(self, connection: Connection) -> Session:
        """Of a client that has to authenticate."""
        return Session(ANONYMOUS, connection.peer_host, connection.listener_name, exchange=SaslExchange(self._server))


class Sasl:
    """SASL of one broker: its listeners, and the keys of issuers of tokens that they share."""

    def __init__(self, config: BrokerConfig, clock: Clock, users: ScramUsers, executor: Executor | None = None) -> None:
        self._config = config
        self._clock = clock
        self._users = users
        self._executor = executor
        self._unknown = UnknownUsers()
        self._keys: dict[JwksPlan, Jwks] = {}
        self._complaints = RateLimitedLog(logger)
        self._listeners: dict[str, SaslListener] = {}
        self._settings: dict[str, SaslSettings] = {}
        # None: none are read before the start.
        self._started: set[JwksPlan] | None = None
        self._reading: set[asyncio.Task[None]] = set()
        self.stats: dict[str, SaslStats] = {}

    def listener(self, name: str, carrier: ListenerSecurity) -> SaslListener:
        """A listener.  SaslSettingsError where its settings are not those of one."""
        settings = self._settings[name] = sasl_settings(self._config, name)
        warn_of_ignored(self._config, name, settings.mechanisms[0].name)
        stats = self.stats[name] = SaslStats()
        server = self._server(name, settings, stats)
        made = self._listeners[name] = SaslListener(carrier, server, settings.first_frame_bytes)
        return made

    def keep_salts(self, secret: Callable[[], bytes]) -> None:
        """Have the salts of users that there are not come of a secret that outlives this process."""
        if self._listeners:
            self._unknown.keep(secret())

    # Changes

    def check(self, config: BrokerConfig) -> None:
        """SaslSettingsError, a ValueError, where settings that were changed at run time must not be taken."""
        for name in self._listeners:
            sasl_settings(config, name)

    def follow(self, config: BrokerConfig) -> None:
        """Take what was changed at run time, for logins from now on.  Clients that are in stay."""
        for name, listener in self._listeners.items():
            try:
                settings = sasl_settings(config, name)
                if settings != self._settings[name]:
                    listener.take(self._server(name, settings, self.stats[name]))
                    self._settings[name] = settings
                    logger.info("listener %s has new settings of SASL", name)
            except SaslSettingsError as error:
                logger.error("listener %s keeps the settings of SASL that it has: %s", name, error)
        self._start_new()

    def _server(self, name: str, settings: SaslSettings, stats: SaslStats) -> SaslServer:
        mechanisms = {
            each.name: OfferedMechanism(self._maker(each), each.max_reauth_ms) for each in settings.mechanisms
        }
        return SaslServer(mechanisms, self._clock, settings.failure_delay_ms, stats, partial(self._failed, name))

    def _maker(self, settings: MechanismSettings) -> Callable[[], ServerMechanism]:
        if settings.name == PLAIN:
            return partial(PlainServer, PlainUsers(settings.options).accepts)
        if settings.name in BY_NAME:
            return partial(ScramServer, BY_NAME[settings.name], self._users, self._unknown)
        if settings.name == OAUTHBEARER:
            assert settings.keys is not None
            keys = self._keys.setdefault(settings.keys, Jwks(settings.keys, executor=self._executor))
            return partial(OAuthBearerServer, TokenCheck(settings.rules, keys, self._clock.now_ms), self._refused)
        names = KerberosNames(settings.kerberos_rules)
        try:
            GssapiServer(settings.options, names)
        except SaslError as error:
            raise SaslSettingsError(str(error)) from None
        return partial(GssapiServer, settings.options, names)

    def _failed(self, listener: str, host: str, mechanism: str, reason: str) -> None:
        self._complaints.warning(
            (listener, mechanism, reason),
            "authentication of a client at %s on listener %s failed (%s): %s",
            host,
            listener,
            mechanism,
            reason,
        )

    def _refused(self, error: Exception) -> None:
        self._complaints.warning(("token", str(error)), "a bearer token is refused: %s", error)

    async def start(self) -> None:
        """Read the keys of issuers.  JwksError for a file that has none."""
        self._started = set(self._keys)
        await asyncio.gather(*(keys.start() for keys in self._keys.values()))

    def _start_new(self) -> None:
        """Read the keys of issuers that have come at run time."""
        for plan in self._keys.keys() - (self._keys if self._started is None else self._started):
            self._started = {*(self._started or ()), plan}
            reading = asyncio.get_running_loop().create_task(self._keys[plan].start())
            self._reading.add(reading)
            reading.add_done_callback(self._has_read)

    def _has_read(self, reading: asyncio.Task[None]) -> None:
        self._reading.discard(reading)
        if not reading.cancelled() and (error := reading.exception()) is not None:
            logger.error("no bearer token is taken: %s", error)

    def close(self) -> None:
        """Read them no more."""
        for reading in self._reading:
            reading.cancel()
        for keys in self._keys.values():
            keys.close()

    def log_suppressed(self) -> None:
        """Log how many complaints of each kind were left out since the last one was logged."""
        self._complaints.flush()
