"""What `kbroker doctor` says of each listener: what it is open to."""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.cli.checks.host_checks import Finding, Level
from kbroker.config import BrokerConfig
from kbroker.security.openness import openness


def check_openness(config: BrokerConfig) -> Iterator[Finding]:
    """A warning where any client that reaches a listener over a network may do everything."""
    for each in openness(config):
        yield Finding(
            Level.WARNING if each.is_exposed else Level.OK,
            each.listener,
            f"open to {each.who}; {each.rights}",
            "listen on 127.0.0.1, or have clients authenticate and set authorizer.class.name; docs/security.md says how"
            if each.is_exposed
            else "",
        )
