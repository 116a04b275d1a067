"""Subjects of the registry, versions of one, and what differs between two.

A viewer sees all of them with DESCRIBE on the cluster, else those of topics that it may describe (`TOPIC-key`,
`TOPIC-value`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.console.parameters import NotShownError, NotThereError, page_of, view_of
from kbroker.errors import ErrorCode, KafkaError
from kbroker.registry.errors import SchemaError, UnknownSchemaError
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker.console.parameters import Key, Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.registry.client import Registry, SubjectVersion

T = TypeVar("T")
SUFFIXES = ("-key", "-value")
MOST_LINES = 5_000


@dataclass(frozen=True, slots=True)
class SubjectLine:
    """A subject; `topic`: the topic whose keys or values it describes by its name, empty where there is none such."""

    subject: str
    topic: str


@dataclass(frozen=True, slots=True)
class ShownSchema:
    """A version of a subject.  `lines`: its text, in lines.  `compared`: the version that `differences` begin with, as
    lines of a unified diff; None where there is none."""

    subject: str
    versions: Sequence[int]
    version: int
    schema_id: int
    kind: str
    lines: Sequence[str]
    references: Sequence[object]
    compared: int | None
    differences: Sequence[str]


_KEYS: Mapping[str, Key[SubjectLine]] = {"subject": lambda line: line.subject}


async def subjects(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/schemas?q=&sort=&start=&count="""
    view = view_of(parameters, _KEYS)
    names = await ask(registry_of(parts).subjects)
    topics = parts.services.metadata_cache.image.topics
    pace = parts.sources.slices.pace()
    lines = []
    for name in names:
        await pace
        if _may_see(parts, name):
            topic = topic_of(name)
            lines.append(SubjectLine(name, topic if topic in topics else ""))
    return partial(page_of, lines, view, _KEYS, lambda line: line.subject)


async def schema(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/schema?subject=&version=&compared=: the latest version, beside the one before, where nothing
    else is said."""
    registry, name = registry_of(parts), parameters.text("subject")
    if not _may_see(parts, name):
        raise NotThereError(f"there is no subject {name}")
    wanted = parameters.number("version", 0, 0, 1 << 31)
    compared = parameters.number("compared", 0, 0, 1 << 31)
    return await ask(partial(_shown, registry, name, wanted, compared))


def registry_of(parts: ConsoleParts) -> Registry:
    """NotShownError where there is none."""
    if parts.registry is None:
        raise NotShownError("There is no schema registry: kbroker.schema.registry.url is not set.")
    return parts.registry


async def ask(work: Callable[[], T]) -> T:
    """What a registry says, asked by a thread.  NotThereError, KafkaError."""
    try:
        return await asyncio.get_running_loop().run_in_executor(None, work)
    except UnknownSchemaError as error:
        raise NotThereError(str(error)) from None
    except SchemaError as error:
        raise KafkaError.of(ErrorCode.NETWORK_EXCEPTION, str(error)) from None


def topic_of(subject: str) -> str:
    """The topic that a subject is of by its name; empty where it is of none."""
    suffix = next((each for each in SUFFIXES if subject.endswith(each)), "")
    return subject.removesuffix(suffix) if suffix else ""


def _may_see(parts: ConsoleParts, subject: str) -> bool:
    if parts.may(Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
        return True
    topic = topic_of(subject)
    return bool(topic) and parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic)


def _shown(registry: Registry, name: str, wanted: int, compared: int) -> Callable[[], ShownSchema]:
    versions = registry.versions(name)
    found = registry.version(name, wanted or None)
    before = compared or max((each for each in versions if each < found.version), default=0)
    lines = lines_of(found)
    differences: list[str] = []
    if before and before != found.version:
        old = registry.version(name, before)
        names = f"version {before}", f"version {found.version}"
        differences = list(unified_diff(lines_of(old), lines, *names, lineterm=""))
    shown = ShownSchema(
        name,
        versions,
        found.version,
        found.schema_id,
        found.kind,
        lines[:MOST_LINES],
        found.references,
        before or None,
        differences[:MOST_LINES],
    )
    return lambda: shown


def lines_of(schema: SubjectVersion) -> list[str]:
    """The text in lines: JSON is set out, other text as it is."""
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False).splitlines()
    except (ValueError, RecursionError):
        return schema.text.splitlines()
