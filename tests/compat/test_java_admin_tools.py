"""Kafka's own tools for features, client metrics, settings of groups, elections and quorums."""

from __future__ import annotations

import re

from tests.compat.brokers import BrokerProcess
from tests.compat.java_tools import TOOLS, refused, tool

CONFIGS = "kafka.admin.ConfigCommand"


def test_features_client_metrics_and_groups(broker: BrokerProcess) -> None:
    """Operators could not see or change levels, subscriptions and groups' settings with the tools that they know."""
    described = tool(broker, f"{TOOLS}.FeatureCommand", "describe")
    assert re.search(r"Feature: metadata.version\s+.*SupportedMaxVersion: 4.3-IV0", described)
    assert re.search(r"Feature: eligible.leader.replicas.version\s+.*FinalizedVersionLevel: 1", described)
    metrics = f"{TOOLS}.ClientMetricsCommand"
    wanted = ("--metrics", "org.apache.kafka.producer", "--interval", "60000", "--match", "client_id=java-.*")
    assert "Altered client metrics config for tools." in tool(broker, metrics, "--alter", "--name", "tools", *wanted)
    shown = tool(broker, metrics, "--describe", "--name", "tools")
    assert {"interval.ms=60000", "match=client_id=java-.*", "metrics=org.apache.kafka.producer"} <= set(shown.split())
    group = ("--entity-type", "groups", "--entity-name", "tools")
    tool(broker, CONFIGS, "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    shown = tool(broker, CONFIGS, "--describe", *group)
    assert "consumer.session.timeout.ms=50000" in shown and "DYNAMIC_GROUP_CONFIG" in shown
    no_quorum = refused(broker, f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    assert "there is no quorum to describe" in no_quorum
    tool(broker, metrics, "--delete", "--name", "tools")
