"""Which settings and quotas of an Apache Kafka this broker takes over: pure; what it does not take has its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.config import broker_config_rows, validate_client_metrics, validate_group_config
from kbroker.config.topic import validate_topic_config
from kbroker.errors import InvalidRequestError, KafkaError
from kbroker.metadata.broker_settings import STORED, is_live
from kbroker.metadata.features import FEATURES, Features
from kbroker.metadata.image import ConfigResource, QuotaEntity
from kbroker.quotas.alteration import EntityAlteration, QuotaEdit, alter

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

Values = dict[str, str]
_BROKER_ROWS = {row.name: row for row in broker_config_rows()}


def topic_settings(values: Mapping[str, str]) -> tuple[Values, list[str]]:
    """(the topic's settings here, the settings that cannot be kept and why)."""
    return _taken(values, validate_topic_config)


def resource_settings(
    configs: Mapping[ConfigResource, Mapping[str, str]], config: BrokerConfig
) -> tuple[dict[ConfigResource, Values], list[str]]:
    """(the settings of brokers, groups and client metrics here, the settings that cannot be kept and why)."""
    kept: dict[ConfigResource, Values] = {}
    left: list[str] = []
    own = str(config.node_id)
    for resource, values in sorted(configs.items()):
        match resource.kind:
            case ConfigResourceType.TOPIC:
                continue
            case ConfigResourceType.BROKER if resource.name not in ("", own):
                left.append(
                    f"the settings of broker {resource.name}, which is another one: {', '.join(sorted(values))}"
                )
                continue
            case ConfigResourceType.BROKER:
                what = f"broker {resource.name}" if resource.name else "all brokers"
                taken, refused = _taken(values, _check_broker)
            case ConfigResourceType.GROUP:
                what = f"group {resource.name}"
                taken, refused = _taken(values, lambda settings: validate_group_config(settings, config))
            case ConfigResourceType.CLIENT_METRICS:
                what = f"client metrics {resource.name}"
                taken, refused = _taken(values, validate_client_metrics)
            case _:
                left.append(f"settings of resource type {resource.kind}: {resource.name}")
                continue
        if taken:
            kept[resource] = taken
        left.extend(f"a setting of {what}: {reason}" for reason in refused)
    return kept, left


def client_quotas(
    quotas: Mapping[QuotaEntity, Mapping[str, float]],
) -> tuple[dict[QuotaEntity, dict[str, float]], list[str]]:
    """(the quotas here, those that are none, and why)."""
    kept: dict[QuotaEntity, dict[str, float]] = {}
    left: list[str] = []
    for entity, values in quotas.items():
        for key, value in values.items():
            outcome = alter([EntityAlteration(entity, [QuotaEdit(key, value)])], {}, lambda _name: True)
            error = outcome.results[entity]
            if error is None:
                kept.setdefault(entity, {})[key] = value
            else:
                left.append(f"the quota {key} of {dict(entity)}: {error}")
    return kept, left


def feature_levels(levels: Mapping[str, int]) -> Features:
    """The cluster's levels of the features that this broker serves; a feature without a level stays off."""
    return Features(1, {feature.name: levels.get(feature.name, 0) for feature in FEATURES})


def _taken(values: Mapping[str, str], check: Callable[[Mapping[str, str]], None]) -> tuple[Values, list[str]]:
    kept: Values = {}
    refused: list[str] = []
    for name, value in sorted(values.items()):
        try:
            check({**kept, name: value})
        except KafkaError as error:
            refused.append(f"{name}={value}: {error}")
        else:
            kept[name] = value
    return kept, refused


def _check_broker(settings: Mapping[str, str]) -> None:
    for name, text in settings.items():
        row = _BROKER_ROWS.get(name)
        if row is None:
            raise InvalidRequestError("there is no such setting here")
        if not is_live(name) and name not in STORED:
            raise InvalidRequestError("not changed at run time here: set it in server.properties")
        try:
            row.parse(text)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None
