"""Settings of topics, brokers, users, clients and addresses in ZooKeeper: read at start, followed by their changes.

Any broker writes them: the entity's znode, then a notification that all brokers watch and that nothing else replaces.
What is read goes into the metadata cache, as on a single node.

    topics/t1                           a topic's settings, which are written at its creation, too
    brokers/2   brokers/<default>       a broker's, all brokers'
    users/U   clients/C   users/U/clients/C   ips/A     quotas, and SCRAM credentials beside those of a user
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.notifications import Notifications
from kbroker.cluster.zookeeper.reader import ZnodeReader
from kbroker.cluster.zookeeper.scram_settings import credentials_of, with_credentials
from kbroker.cluster.zookeeper.session import (
    Check,
    MultiError,
    NoNodeError,
    Set,
    ZooKeeper,
    ZooKeeperError,
    set_or_create,
)
from kbroker.cluster.zookeeper.znodes import decode_config, decode_config_change, encode_config, encode_config_change
from kbroker.errors import again
from kbroker.metadata.image import ClusterImage, ConfigResource, MetadataDelta, QuotaEntity, TopicChange
from kbroker.metadata.security_image import ScramCredential, ScramKey, SecurityDelta
from kbroker.quotas.rules import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONTROLLER_MUTATION_RATE,
    IP,
    IP_KEYS,
    REQUEST_PERCENTAGE,
    USER,
)
from kbroker.types import ZERO_UUID

if TYPE_CHECKING:
    from kbroker.metadata.cache import MetadataCache

logger = logging.getLogger("kbroker.cluster")

DEFAULT = "<default>"
_KINDS = (("users", USER), ("clients", CLIENT_ID), ("ips", IP))
_FRACTIONAL = frozenset({REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
TopicConfigs = Mapping[str, Mapping[str, str]]


def sanitized(name: str) -> str:
    """A name of a user or client as part of a path (Kafka's `Sanitizer`)."""
    return quote(name, safe="").replace("~", "%7E")


def entity_path(entity: QuotaEntity) -> str:
    """Where the quotas of an entity are kept."""
    names = dict(entity)
    return "/".join(
        f"{folder}/{DEFAULT if (name := names[kind]) is None else sanitized(name)}"
        for folder, kind in _KINDS
        if kind in names
    )


def quota_entity(path: str) -> QuotaEntity | None:
    """The entity of a path; None where it is none of quotas."""
    parts = path.split("/")
    kinds = dict(_KINDS)
    if len(parts) % 2 or not all(each in kinds for each in parts[::2]):
        return None
    return tuple(
        sorted(
            (kinds[kind], None if name == DEFAULT else unquote(name))
            for kind, name in zip(parts[::2], parts[1::2], strict=True)
        )
    )


def quota_values(settings: Mapping[str, str]) -> dict[str, float]:
    """The quotas among an entity's settings; what is no number is left out."""
    found = {}
    for name, text in settings.items():
        if name in CLIENT_KEYS or name in IP_KEYS:
            try:
                found[name] = float(text)
            except ValueError:
                logger.error("quota %s=%r makes no sense and is left out", name, text)
    return found


def quota_text(name: str, value: float) -> str:
    """A quota as Kafka writes it."""
    return repr(float(value)) if name in _FRACTIONAL else str(int(value))


class EntityConfigs:
    """What is set, as this broker knows it by now.  `run` follows changes until it is cancelled."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._reader = ZnodeReader(zookeeper)
        self._cache: MetadataCache | None = None
        self._topics: dict[str, dict[str, str]] = {}
        self._notifications = Notifications(
            zookeeper,
            self._reader,
            paths.CONFIG_CHANGES,
            decode_config_change,
            self._reload,
            "settings",
            self._read_again,
        )
        self._listeners: list[Callable[[TopicConfigs], None]] = []

    def on_topics(self, listener: Callable[[TopicConfigs], None]) -> None:
        """Call `listener` with settings of topics that have changed."""
        self._listeners.append(listener)

    @property
    def nonsense(self) -> Mapping[str, str]:
        """Znodes that were left out, with the reason."""
        return self._reader.nonsense

    # Topics

    def of_topic(self, name: str) -> Mapping[str, str]:
        """A topic's settings as far as they are known."""
        return self._topics.get(name, {})

    async def topics(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings of topics, read where they are not known."""
        unknown = [name for name in names if not self._is_known(name)]
        await asyncio.gather(*(self._read_topic(name) for name in unknown))
        return self._topics

    def _is_known(self, name: str, topic_id: bytes = ZERO_UUID) -> bool:
        """Whether the settings read are those in force.  Settings read for a topic that is not in this broker's
        metadata may be those of an earlier topic of that name: no notification tells of the settings that a topic is
        created with."""
        if name not in self._topics or self._cache is None:
            return name in self._topics
        announced = self._cache.topic(name)
        return announced is not None and topic_id in (announced.topic_id, ZERO_UUID)

    async def _read_topic(self, name: str) -> None:
        self._topics[name] = await self.settings(f"topics/{name}")

    async def prepare(self, topics: Mapping[str, bytes]) -> None:
        """Read the settings of topics, ids by name, that are not known yet; without ZooKeeper they stay as they were,
        or are taken for empty."""
        unknown = [name for name, topic_id in topics.items() if not self._is_known(name, topic_id)]
        if not unknown:
            return
        found = await asyncio.gather(*(self._read_topic(name) for name in unknown), return_exceptions=True)
        for name, error in zip(unknown, found, strict=True):
            if isinstance(error, ZooKeeperError):
                logger.warning("the settings of topic %s can't be read: %s", name, error)
            elif error is not None:
                raise again(error)

    def forget(self, name: str) -> None:
        """A topic is gone; one of its name has settings of its own."""
        self._topics.pop(name, None)

    def _on_metadata(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        for topic in delta.deleted:
            self.forget(topic.name)

    # Reading

    def publish_to(self, cache: MetadataCache) -> None:
        """Let `cache` have what is read from now on."""
        self._cache = cache
        cache.subscribe(self._on_metadata)

    async def load(self) -> None:
        """Read everything; may be done again."""
        await self._notifications.mark()
        names = await self._reader.children("/config/topics")
        await self.topics(names)
        await self._load_others()

    async def _read_again(self) -> None:
        for name in list(self._topics):
            await self._reload(f"topics/{name}")
        if self._cache is not None:
            image = self._cache.image
            known = {entity_path(entity) for entity in image.quotas}
            known.update(entity_path(((USER, key.user),)) for key in image.security.scram)
            for path in sorted(known):
                await self._reload(path)
        await self._load_others()

    async def _load_others(self) -> None:
        for name in await self._reader.children("/config/brokers"):
            await self._reload(f"brokers/{name}")
        for folder in ("users", "clients", "ips"):
            for name in await self._reader.children(f"/config/{folder}"):
                await self._reload(f"{folder}/{name}")
                if folder == "users":
                    for client in await self._reader.children(f"/config/users/{name}/clients"):
                        await self._reload(f"users/{name}/clients/{client}")

    async def settings(self, path: str) -> dict[str, str]:
        """An entity's settings as they are in ZooKeeper."""
        found = await self._reader.read(paths.config(path), decode_config)
        return {} if found is None else found[0]

    async def _reload(self, path: str) -> None:
        kind, _, name = path.partition("/")
        settings = await self.settings(path)
        if kind == "topics":
            self._topics[name] = settings
            self._publish_topic(name, settings)
            for listener in self._listeners:
                listener({name: settings})
        elif kind == "brokers":
            resource = ConfigResource(ConfigResourceType.BROKER, "" if name == DEFAULT else name)
            self._publish(MetadataDelta(configs={resource: settings}))
        elif (entity := quota_entity(path)) is not None:
            self._publish(MetadataDelta(quotas={entity: quota_values(settings)}))
            match entity:
                case (("user", str(user)),):
                    self._publish_credentials(user, settings)

    def _publish_topic(self, name: str, settings: Mapping[str, str]) -> None:
        old = None if self._cache is None else self._cache.topic(name)
        if old is not None and old.configs != settings:
            self._publish(MetadataDelta(changed=(TopicChange(old, replace(old, configs=settings)),)))

    def _publish_credentials(self, user: str, settings: Mapping[str, str]) -> None:
        if self._cache is not None:
            known = self._cache.image.security.scram
            found = credentials_of(user, settings)
            changes = {key: credential for key, credential in found.items() if known.get(key) != credential}
            if changes:
                self._cache.apply(MetadataDelta(security=SecurityDelta(scram=changes)))

    async def alter_credentials(self, changes: Mapping[ScramKey, ScramCredential | None]) -> None:
        """Change credentials of users, beside their quotas.  ZooKeeperError."""
        for user in dict.fromkeys(key.user for key in changes):
            path = entity_path(((USER, user),))
            own = {key: credential for key, credential in changes.items() if key.user == user}
            await self.write(path, with_credentials(await self.settings(path), own))

    def _publish(self, delta: MetadataDelta) -> None:
        if self._cache is None:
            return
        image = self._cache.image
        same = all(image.configs.get(key, {}) == value for key, value in delta.configs.items()) and all(
            image.quotas.get(key, {}) == value for key, value in delta.quotas.items()
        )
        if delta.changed or not same:
            self._cache.apply(delta)

    # Following changes

    async def run(self) -> None:
        """Follow notifications; after a lost connection those that came meanwhile, too."""
        await self._notifications.run()

    # Writing

    async def write(self, path: str, settings: Mapping[str, str]) -> None:
        """Give an entity these settings and no others, and let all brokers know."""
        content = encode_config(settings)
        target = paths.config(path)
        try:
            controller = await self._zookeeper.exists(paths.CONTROLLER)
            if controller is None:
                await self._zookeeper.set(target, content)
            else:
                # A KRaft controller that takes the cluster over deletes /controller first.
                await self._zookeeper.multi([Check(paths.CONTROLLER, controller.version), Set(target, content)])
        except NoNodeError:
            await set_or_create(self._zookeeper, target, content)
        except MultiError as error:
            if error.index != 1 or not isinstance(error.cause, NoNodeError):
                raise again(error.cause) from error
            await set_or_create(self._zookeeper, target, content)
        await self._notifications.tell(paths.CONFIG_CHANGE_NAME, encode_config_change(path))
        await self._reload(path)
