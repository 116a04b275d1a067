"""The settings that an alteration gives a resource of each kind, checked: topics, brokers, groups, client metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbroker.cluster.config_changes import ConfigResourceType, Settings, altered, is_topic_list, topic_default
from kbroker.cluster.topics import plan_configs
from kbroker.config import render_value, topic_config_rows, validate_client_metrics, validate_group_config
from kbroker.errors import InvalidRequestError
from kbroker.metadata.topic_names import validate

if TYPE_CHECKING:
    from kbroker.cluster.requests import ConfigAlteration
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.image import ConfigResource, TopicImage

logger = logging.getLogger("kbroker.cluster")

_IDLE = {row.name: row.reason for row in topic_config_rows() if not row.implemented}


class ResourceConfigs:
    """Plans of new settings, by the broker settings that are in force."""

    __slots__ = ("_settings",)

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings

    def topic(self, topic: TopicImage | None, alteration: ConfigAlteration) -> TopicImage:
        """The topic with its new settings; Kafka's error where it cannot have them.  Raises InvalidRequestError."""
        name = alteration.resource.name
        own = {} if topic is None else topic.configs
        settings = altered(own, alteration, partial(topic_default, self._settings.config), is_topic_list)
        if not name:
            raise InvalidRequestError("Default topic resources are not allowed.")
        validate(name)
        return plan_configs(topic, name, settings)

    def of(self, own: Mapping[str, str], alteration: ConfigAlteration) -> Settings:
        """The settings of a broker, a group or client metrics; Kafka's error where it cannot have them.

        Raises InvalidRequestError."""
        resource = alteration.resource
        match resource.kind:
            case ConfigResourceType.BROKER:
                settings = altered(own, alteration, self._broker_default, self._settings.is_list)
                self._settings.check(resource.name, own, settings, [each.name for each in alteration.edits])
                return settings
            case ConfigResourceType.GROUP:
                settings = altered(own, alteration, _no_default, _is_no_list)
                if not resource.name:
                    raise InvalidRequestError("Default group resources are not allowed.")
                validate_group_config(settings, self._settings.config)
                return settings
            case ConfigResourceType.CLIENT_METRICS:
                settings = altered(own, alteration, _no_default, _is_no_list)
                if not resource.name:
                    raise InvalidRequestError("Subscription name can't be empty")
                validate_client_metrics(settings)
                return settings
        raise InvalidRequestError(f"Unknown resource type {resource.kind}")

    def _broker_default(self, name: str) -> str:
        return render_value(self._settings.config.value_of(name)) or ""

    @staticmethod
    def described(resource: ConfigResource) -> str:
        """A resource in words, for the log."""
        match resource.kind:
            case ConfigResourceType.BROKER:
                return f"broker {resource.name}" if resource.name else "all brokers"
            case ConfigResourceType.GROUP:
                return f"group {resource.name!r}"
        return f"client metrics {resource.name!r}"


def _no_default(_name: str) -> str:
    return ""


def _is_no_list(_name: str) -> bool:
    """As in Kafka, whose lists for client metrics are replaced as a whole."""
    return False


def warn_of_idle_settings(topic: str, configs: Iterable[str]) -> None:
    """No setting is taken without a word that has no effect here."""
    for name in sorted(_IDLE.keys() & set(configs)):
        logger.warning("topic %s: %s is stored and shown, and has no effect: %s", topic, name, _IDLE[name])
