"""Settings: Kafka's names, defaults and checks, read from files, environment and command line."""

from __future__ import annotations

from kbroker.config.broker import BrokerConfig, ConfigError, Source
from kbroker.config.listener import Listener
from kbroker.config.row import ConfigRow
from kbroker.config.table import broker_config_rows, topic_config_rows
from kbroker.config.topic import LogConfig, log_config, topic_value_from_broker, validate_topic_config
from kbroker.config.value import ConfigType, render_value

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "ConfigRow",
    "ConfigType",
    "Listener",
    "LogConfig",
    "Source",
    "broker_config_rows",
    "log_config",
    "render_value",
    "topic_config_rows",
    "topic_value_from_broker",
    "validate_topic_config",
]
