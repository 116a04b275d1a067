"""What container images do besides writing settings: commands of a shell, the cluster's id, topics that are made.

CLUSTER_ID, KAFKA_CLUSTER_ID, KAFKA_KRAFT_CLUSTER_ID     the id that new directories get
HOSTNAME_COMMAND, PORT_COMMAND, BROKER_ID_COMMAND, RACK_COMMAND
                                                         lines of a shell whose output is a variable where it is not
                                                         set, and stands for `_{HOSTNAME_COMMAND}` in other values
KAFKA_CREATE_TOPICS=orders:3:1,users:1:1:compact         name:partitions:replicas:cleanup.policy
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kbroker.config.images.names import COMMANDS, PREFIX, ImageError

_CLUSTER_IDS = ("CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLUSTER_ID")
TOPICS = "KAFKA_CREATE_TOPICS"
_SEPARATOR = "KAFKA_CREATE_TOPICS_SEPARATOR"
_ESCAPES = {r"\n": "\n", r"\t": "\t"}
_SECONDS = "START_TIMEOUT"
_DEFAULT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic that is to be there when the broker has started."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str] = field(default_factory=dict)


def cluster_id(environ: Mapping[str, str]) -> str:
    """The id that the environment gives the cluster; empty where it gives none.  ImageError where it gives two."""
    given = {name: environ[name].strip() for name in _CLUSTER_IDS if environ.get(name, "").strip()}
    if len(set(given.values())) > 1:
        raise ImageError(f"environment {', '.join(given)}: they say different ids")
    return next(iter(given.values()), "")


def planned_topics(environ: Mapping[str, str]) -> list[PlannedTopic]:
    """The topics of KAFKA_CREATE_TOPICS.  ImageError for what is none."""
    separator = environ.get(_SEPARATOR, ",") or ","
    if separator.startswith("$'") and separator.endswith("'"):
        separator = separator[2:-1]
    for escape, character in _ESCAPES.items():
        separator = separator.replace(escape, character)
    items = re.split(f"[{re.escape(separator)}]", environ.get(TOPICS, ""))
    return [_topic(item.strip()) for item in items if item.strip()]


def _topic(text: str) -> PlannedTopic:
    name, *rest = (part.strip() for part in text.split(":", 3))
    if len(rest) < 2 or not name or not all(part.isdigit() and int(part) > 0 for part in rest[:2]):
        raise ImageError(f"environment {TOPICS}: {text!r} is not name:partitions:replicas or …:cleanup.policy")
    settings: dict[str, str] = {}
    policy, *options = rest[2].split() if len(rest) > 2 and rest[2] else [""]
    if policy and not policy.startswith("--"):
        settings["cleanup.policy"] = policy
    elif policy:
        options = [policy, *options]
    # Its script hands the rest to kafka-topics, by which people set more.
    for option in " ".join(options).replace("--config=", "--config ").split("--config "):
        key, equals, value = option.strip().partition("=")
        if equals:
            settings[key] = value
        elif option.strip():
            raise ImageError(f"environment {TOPICS}: {option.strip()!r} of {name} is no --config key=value")
    return PlannedTopic(name, int(rest[0]), int(rest[1]), settings)


def seconds_to_wait(environ: Mapping[str, str]) -> float:
    """How long the broker may take until topics are made."""
    text = environ.get(_SECONDS, "").strip()
    return float(text) if text.isdigit() else _DEFAULT_SECONDS


def with_commands(environ: Mapping[str, str], run: Callable[[str, str], str]) -> dict[str, str]:
    """The environment with the output of its commands.  `run(name, line)` gives a line's output."""
    found = dict(environ)
    for name, variable in COMMANDS.items():
        line = environ.get(name, "")
        if not line.strip():
            continue
        mark = f"_{{{name}}}"
        users = [key for key, value in found.items() if key.startswith(PREFIX) and mark in value]
        if users or not found.get(variable):
            output = run(name, line).strip()
            for key in users:
                found[key] = found[key].replace(mark, output)
            if not found.get(variable):
                found[variable] = output
    return found
