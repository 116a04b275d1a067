"""Apache Kafka and kbroker asked the same; each difference, and a table of API by version.

python -m tests.differential.comparison [--record] [--only-3.9.1] [API...]       see the package
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbroker.handlers import dispatch
from kbroker.protocol.api import ApiKey
from kbroker.protocol.schema import parse_versions
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.old_kafka import OldKafka
from tests.compat.real_kafka import KafkaProcess
from tests.differential.allowed import reason_of
from tests.differential.questions import Questions
from tests.scenarios.answer_parts import differing_parts

RECORD = Path(__file__).parent / "record.json"
VERSIONS = Path(__file__).parent / "served_versions.json"
# 3.9.1 for the versions that 4 has dropped.
KAFKAS: dict[str, type[BrokerProcess]] = {"4.3.1": KafkaProcess, "3.9.1": OldKafka}
# Assignments come with the heartbeat that asks for them.
AT_ONCE = {"group.consumer.assignment.interval.ms": "0", "group.share.assignment.interval.ms": "0"}
SETTINGS = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0", **AT_ONCE}


@dataclass(slots=True)
class Compared:
    """One API in one version: how many requests, a line for each part of an answer that must not differ, and how
    many requests differ for each reason that is allowed."""

    api: str
    version: int
    kafka: str
    requests: int = 0
    differing: list[str] = field(default_factory=list)
    allowed: dict[str, int] = field(default_factory=dict)


def pairs(kafka: str) -> Iterator[tuple[str, int]]:
    """(API, version) of what is compared with this Kafka."""
    table: dict[str, dict[str, str]] = json.loads(VERSIONS.read_text())
    current, old = ({name: parse_versions(text) for name, text in table[each].items()} for each in KAFKAS)
    for handler in sorted(dispatch.broker_rows(), key=lambda each: each.api_key):
        name = ApiKey(handler.api_key).message_name
        for version in range(handler.min_version, handler.max_version + 1):
            is_current = version in current.get(name, ())
            in_this = is_current if kafka == "4.3.1" else not is_current and version in old.get(name, ())
            if in_this:
                yield name, version


@contextmanager
def both(kafka: str, folder: Path) -> Iterator[tuple[Questions, Questions]]:
    """Apache Kafka in this version and kbroker, started for the comparison."""
    brokers = [
        KAFKAS[kafka](folder / f"kafka-{kafka}", SETTINGS),
        KbrokerProcess(folder / f"kbroker-{kafka}", SETTINGS),
    ]
    try:
        for broker in brokers:
            broker.start()
        yield Questions(brokers[0].port), Questions(brokers[1].port)
    finally:
        for broker in brokers:
            broker.kill()


def compare(
    folder: Path,
    apis: Iterable[str] = (),
    report: Callable[[Compared], None] | None = None,
    kafkas: Iterable[str] = KAFKAS,
) -> list[Compared]:
    """Ask both brokers everything that both serve."""
    wanted = set(apis)
    found = []
    for kafka in kafkas:
        listed = [pair for pair in pairs(kafka) if not wanted or pair[0] in wanted]
        if not listed:
            continue
        with both(kafka, folder) as (theirs, ours), ThreadPoolExecutor(2) as pool:
            for api, version in listed:
                asked = [pool.submit(each.ask_all, api, version) for each in (theirs, ours)]
                found.append(_compared(Compared(api, version, kafka), *(each.result() for each in asked)))
                if report is not None:
                    report(found[-1])
    return found


def _compared(row: Compared, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Compared:
    assert theirs.keys() == ours.keys()
    row.requests = len(theirs)
    for name, expected in theirs.items():
        reasons = set()
        for line in differing_parts(expected, ours[name], ""):
            reason = reason_of(row.api, row.version, f"{name}: {line}")
            if reason is None:
                row.differing.append(f"{name}: {line}")
            else:
                reasons.add(reason)
        for reason in reasons:
            row.allowed[reason] = row.allowed.get(reason, 0) + 1
    return row


def record(found: Iterable[Compared]) -> None:
    """Write what came of it in the place of what is on record."""
    rows: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for row in found:
        allowed = dict(sorted(row.allowed.items()))
        rows[f"{row.api} v{row.version}"] = {"kafka": row.kafka, "requests": row.requests, "allowed": allowed}
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items(), key=_in_order)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _in_order(row: tuple[str, Any]) -> tuple[str, int]:
    api, version = row[0].split(" v")
    return api, int(version)


def table(recorded: Mapping[str, Any]) -> str:
    """What docs/compatibility.md shows: versions, requests, and requests with a difference by its reason."""
    reasons: list[str] = []
    rows: dict[str, list[tuple[int, Any]]] = {}
    for name, row in recorded.items():
        api, version = name.split(" v")
        rows.setdefault(api, []).append((int(version), row))
        reasons += [reason for reason in row["allowed"] if reason not in reasons]
    lines = ["| API | versions | requests | differ (reason: requests) |", "|---|---|---|---|"]
    for api, versions in sorted(rows.items()):
        counts: dict[str, int] = {}
        for _, row in versions:
            for reason, count in row["allowed"].items():
                counts[reason] = counts.get(reason, 0) + count
        shown = ", ".join(
            f"{reasons.index(reason) + 1}: {counts[reason]}" for reason in sorted(counts, key=reasons.index)
        )
        names = ", ".join(f"{version}{'' if row['kafka'] == '4.3.1' else '*'}" for version, row in sorted(versions))
        lines.append(f"| {api} | {names} | {sum(row['requests'] for _, row in versions)} | {shown} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}." for number, reason in enumerate(reasons, 1))])


def main() -> None:
    """Compare, and show or record what came of it."""
    words = sys.argv[1:]
    apis = [word for word in words if not word.startswith("--")]

    def report(row: Compared) -> None:
        print(
            f"== {row.api} {row.version}: {row.requests} requests, {len(row.differing)} differ",
            flush=True,
        )
        for line in row.differing:
            print(f"   {line}"[:300], flush=True)
        if "--record" in words and not row.differing:
            record([row])

    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), apis, report, ["3.9.1"] if "--only-3.9.1" in words else KAFKAS)


if __name__ == "__main__":
    main()
