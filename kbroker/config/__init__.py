"""Settings: Kafka's names, defaults and checks, read from files, environment and command line."""

from __future__ import annotations

from kbroker.config.broker import BrokerConfig, ConfigError, Source
from kbroker.config.client_metrics import ClientMetricsConfig, client_metrics_config, validate_client_metrics
from kbroker.config.group import GroupConfig, group_config, group_value_from_broker, validate_group_config
from kbroker.config.listener import EVERY_HOST, Listener
from kbroker.config.row import ConfigRow
from kbroker.config.table import broker_config_rows, client_metrics_rows, group_config_rows, topic_config_rows
from kbroker.config.topic import (
    LogConfig,
    check_message_format,
    log_config,
    topic_value_from_broker,
    validate_topic_config,
)
from kbroker.config.value import ConfigType, render_value

__all__ = [
    "EVERY_HOST",
    "BrokerConfig",
    "ClientMetricsConfig",
    "ConfigError",
    "ConfigRow",
    "ConfigType",
    "GroupConfig",
    "Listener",
    "LogConfig",
    "Source",
    "broker_config_rows",
    "client_metrics_config",
    "client_metrics_rows",
    "group_config",
    "group_config_rows",
    "group_value_from_broker",
    "check_message_format",
    "log_config",
    "render_value",
    "topic_config_rows",
    "topic_value_from_broker",
    "validate_client_metrics",
    "validate_group_config",
    "validate_topic_config",
]
