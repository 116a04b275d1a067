"""A connection to the controller of a cluster, wherever it is by now.

    client = ControllerClient(loop, transport, finder, settings)
    version = await client.version(ApiKey.ALTER_PARTITION, 3)
    answer = await client.send(request, version)
    answer = await client.ask(request, 0)

The metadata say which broker is the controller; in a KRaft cluster the quorum's observer says which controller is
active.  When another one becomes it, requests that wait for the old one fail, as it may hang, and the next request goes
to the new one.  Versions are negotiated, since controllers of other releases answer, too.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kbroker.backoff import ExponentialBackoff
from kbroker.cluster.authenticated import LoginFailedError
from kbroker.cluster.client import NodeClient, NodeError, UnsupportedVersionError
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_output import RateLimitedLog
from kbroker.outage import REMIND_SECONDS
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.cluster.client import ClientSettings, Transport
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import Endpoint
    from kbroker.protocol.messages import Message

logger = logging.getLogger("kbroker.cluster")

RETRY_SECONDS = 60.0


class ControllerFinder(Protocol):
    """Where the controller is."""

    def endpoint(self) -> Endpoint | None:
        """Where it is reached by now; None where that is not known."""

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` when another one may be the controller."""


class ControllerByImage:
    """The broker that the metadata name.  `listener()` names the listener between brokers."""

    def __init__(self, cache: MetadataCache, listener: Callable[[], str]) -> None:
        self._cache = cache
        self._listener = listener

    def endpoint(self) -> Endpoint | None:
        """See `ControllerFinder`."""
        image = self._cache.image
        broker = image.brokers.get(image.controller_id)
        return None if broker is None else broker.endpoints.get(self._listener())

    def on_change(self, changed: Callable[[], None]) -> None:
        """See `ControllerFinder`."""
        self._cache.subscribe(lambda _old, _new, _delta: changed())


def is_of_no_controller(answer: object) -> bool:
    """Whether the node that was asked is not the controller: of the whole request, or, for lack of a code there, of
    some topic."""
    if getattr(answer, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
        return True
    return isinstance(answer, wire.CreateTopicsResponse) and any(
        topic.error_code == ErrorCode.NOT_CONTROLLER for topic in answer.topics
    )


class ControllerClient:
    """See the module.  `settings` say that versions are negotiated."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        finder: ControllerFinder,
        settings: ClientSettings,
        rng: random.Random | None = None,
    ) -> None:
        assert settings.negotiates
        self._loop = loop
        self._finder = finder
        self._backoff = ExponentialBackoff(settings.backoff_seconds, settings.max_backoff_seconds)
        self._random = rng or random.Random()
        self._asked: Endpoint | None = None
        self._news = asyncio.Event()
        self._asking: set[asyncio.Task[object]] = set()
        self._complaints = RateLimitedLog(logger, REMIND_SECONDS, monotonic=loop.time)
        self._client = NodeClient(loop, transport, self._find, settings, rng)
        finder.on_change(self._follow)

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The first and last version of each API that the controller has; empty before the first connection."""
        return self._client.versions

    def _find(self) -> Endpoint | None:
        self._asked = self._finder.endpoint()
        return self._asked

    def _follow(self) -> None:
        """Leave a controller when another one is known; what `ask` waits with goes to that at once."""
        if self._finder.endpoint() is not None:
            self._leave_former()
        self._news.set()
        self._news = asyncio.Event()

    def _leave_former(self) -> None:
        if self._asked is not None and self._asked != self._finder.endpoint():
            self._client.disconnect()

    async def version(self, api_key: int, at_most: int) -> int:
        """The highest common version up to `at_most`, of a connection to the controller by now.  NodeError."""
        self._leave_former()
        await self._client.connect()
        return self._client.version_of(api_key, at_most)

    async def send(self, request: Message, version: int, *, seconds: float | None = None) -> object:
        """The answer to one attempt.  NodeError; ValueError for a request that is too large."""
        self._leave_former()
        return await self._client.send(request, version, seconds=seconds)

    async def ask(self, request: Message, at_most: int, seconds: float = RETRY_SECONDS) -> object:
        """The active controller's answer, in the highest common version up to `at_most`.

        A request that meets a lost connection, or a controller that is not the active one, is sent again, for `seconds`
        in all, as Kafka's brokers do: what a controller did before it failed may so be asked a second time.
        KafkaError: REQUEST_TIMED_OUT where there was none in time, UNKNOWN_SERVER_ERROR where the controller has no
        version of the API, or this broker and it do not trust each other.
        """
        # In a task of its own: a handler may run outside of one, and time limits need one.
        task = self._loop.create_task(self._ask(request, at_most, seconds))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        try:
            return await task
        finally:
            del task  # It keeps its error, and the error this frame.

    async def _ask(self, request: Message, at_most: int, seconds: float) -> object:
        deadline = self._loop.time() + seconds
        attempts = 0
        why = ""
        while (left := deadline - self._loop.time()) > 0:
            news = self._news
            try:
                async with asyncio.timeout(left):
                    answer = await self._ask_once(request, at_most)
            except TimeoutError:
                break
            except UnsupportedVersionError as error:
                raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
            except NodeError as error:
                if isinstance(error.__cause__, LoginFailedError | ssl.SSLError):
                    # Kafka's brokers do not ask again, either: settings have to change.
                    logger.error("a controller does not take this broker for one: %s", error)
                    raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR) from error
                why = str(error)
            else:
                if not is_of_no_controller(answer):
                    self._complaints.flush()
                    return answer
                why = "the controller is not the active one"
            # A failed attempt to connect has its own wait behind it, in the client.
            wait = min(self._backoff.backoff(attempts, self._random.uniform), max(0.0, deadline - self._loop.time()))
            attempts += 1
            try:
                async with asyncio.timeout(wait):
                    await news.wait()
                attempts = 0
            except TimeoutError:
                pass
        name = "" if request.api_key is None else ApiKey(request.api_key).message_name
        text = "%s was not answered by an active controller within %g s: %s"
        self._complaints.warning(request.api_key, text, name, seconds, why)
        raise KafkaError.of(ErrorCode.REQUEST_TIMED_OUT)

    async def _ask_once(self, request: Message, at_most: int) -> object:
        assert request.api_key is not None
        try:
            version = await self.version(request.api_key, at_most)
            return await self._client.send(request, version)
        except ValueError as error:
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    def disconnect(self) -> None:
        """Hang up; the next request connects anew."""
        self._client.disconnect()

    def close(self) -> None:
        """Hang up for good; what waits is cancelled."""
        for task in self._asking:
            task.cancel()
        self._client.close()
