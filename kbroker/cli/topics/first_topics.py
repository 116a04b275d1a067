"""`python -m kbroker.cli.topics.first_topics`: make the topics of KAFKA_CREATE_TOPICS once the container's broker
serves.

`kbroker container` starts it beside the broker.  It asks the container's own listener, not the advertised one; where
another broker is the cluster's controller, that one.  Topics that are there stay as they are.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence

import click

from kbroker.config import BrokerConfig
from kbroker.config.images.first_start import TOPICS, PlannedTopic, planned_topics, seconds_to_wait
from kbroker.config.listener import EVERY_HOST
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode

LOOPBACK = "127.0.0.1"
PAUSE_SECONDS = 0.5
_LATER = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors of a cluster whose brokers are not all there yet."""


def own_address(config: BrokerConfig) -> tuple[str, int]:
    """Where this container's broker is asked from within it."""
    listener = next(each for each in config.listeners if each.protocol == "PLAINTEXT")
    return (LOOPBACK if listener.host in EVERY_HOST else listener.host), listener.port


def make_topics(address: tuple[str, int], topics: Sequence[PlannedTopic], seconds: float) -> dict[str, str]:
    """Make the topics; the reason for each that could not be made, by its name."""
    pause, deadline = threading.Event(), time.monotonic() + seconds
    left, reasons, at = list(topics), dict[str, str](), address
    while left:
        try:
            outcomes, controller = _ask(at, left)
        except click.ClickException as error:
            outcomes, controller = {each.name: (ErrorCode.NOT_CONTROLLER, str(error)) for each in left}, None
        at = controller or address
        for name, (code, text) in outcomes.items():
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                reasons.pop(name, None)
            else:
                reasons[name] = text
        left = [each for each in left if outcomes[each.name][0] in _LATER]
        if not left or time.monotonic() > deadline:
            return reasons
        pause.wait(PAUSE_SECONDS)
    return reasons


def _ask(
    address: tuple[str, int], topics: Sequence[PlannedTopic]
) -> tuple[dict[str, tuple[int, str]], tuple[str, int] | None]:
    """(error and its text of each topic, the controller's address where another broker is it).  ClickException."""
    from kbroker.administration.topics import NewTopic, creation
    from kbroker.cli.connection import Cluster
    from kbroker.cli.refusals import failing_in_words
    from kbroker.schemas import wire

    rows = [NewTopic(each.name, each.partitions, each.replicas, each.settings) for each in topics]
    settings = Cluster(address[0], {}, 10.0).wire_settings()
    with failing_in_words(), settings.connect(*address) as connection:
        answer = connection.send(creation(rows, 10_000))
        found = {
            each.name: (each.error_code, each.error_message or error_name(each.error_code)) for each in answer.topics
        }
        if all(code != ErrorCode.NOT_CONTROLLER for code, _ in found.values()):
            return found, None
        metadata = connection.send(wire.MetadataRequest(topics=[], allow_auto_topic_creation=False))
    where = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    return found, where.get(metadata.controller_id)


def main() -> int:
    """Make the topics that the environment names; 1 where one could not be made."""
    topics = planned_topics(os.environ)
    reasons = make_topics(own_address(BrokerConfig.load(None)), topics, seconds_to_wait(os.environ))
    made = [each.name for each in topics if each.name not in reasons]
    if made:
        verb = "topic is" if len(made) == 1 else "topics are"
        click.echo(f"kbroker: {TOPICS}: {len(made)} {verb} there: {', '.join(made)}", err=True)
    for name, reason in reasons.items():
        click.echo(f"kbroker: {TOPICS}: {name} is not made: {reason}", err=True)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
