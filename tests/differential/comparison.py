"""Apache Kafka and kbroker asked the same; a table of API by version, and each difference.

python -m tests.differential.comparison KAFKA_PORT KBROKER_PORT [API...]      prints both
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.differential.questions import ask_all
from tests.scenarios.session import Session
from tests.scenarios.test_answers import differing_parts
from tests.scenarios.wire import api_name

# What would change the brokers for all questions that follow, needs another client, or has no answer on one node.
LEFT_OUT = frozenset(
    {
        "ApiVersions",
        "SaslHandshake",
        "SaslAuthenticate",
        "UpdateFeatures",
        "UnregisterBroker",
        "AlterReplicaLogDirs",
        "AlterClientQuotas",
        "DescribeQuorum",
        "AddRaftVoter",
        "RemoveRaftVoter",
        "DescribeLogDirs",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
        "WriteTxnMarkers",
    }
)
# Parts of answers that differ on purpose: API, what the line of the difference says, why.
ON_PURPOSE: tuple[tuple[str, str, str], ...] = (
    ("*", r"error_code: Kafka -1,", "Kafka's UNKNOWN_SERVER_ERROR is the code of the fault here"),
    ("*", r"(error_message|message): ", "Texts are in this broker's own words where Kafka's are Java's"),
    ("Fetch", r"session_id: Kafka 'session-\d+', kbroker 0", "A fetch without partitions opens no session"),
    ("Fetch", r"session_id: Kafka 'session-\d+', kbroker 'session", "The same, counted"),
    ("Fetch", r"responses: Kafka \[\]", "Kafka fails the request; here each partition has its own error"),
    ("*", r"^question 1[0-3]: .*kbroker 'connection closed'$", "Damage that Kafka's parser lets pass is refused here"),
    ("DescribeConfigs", r"error_code: Kafka 42, kbroker [03]$", "An unknown kind of resource fails its own row alone"),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One API in one version: how many questions, and a line for each part of an answer that differs."""

    api: str
    version: int
    questions: int
    differing: tuple[str, ...]
    on_purpose: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.differing:
            return f"{len(self.differing)} differ"
        return f"equal but for {len(self.on_purpose)} on purpose" if self.on_purpose else "equal"


def ranges(port: int) -> dict[str, range]:
    """The versions that a broker advertises, by API."""
    session = Session(port)
    try:
        answer = session.quietly("ApiVersions", 0)
    finally:
        session.close()
    return {api_name(row.api_key): range(row.min_version, row.max_version + 1) for row in answer.api_keys}


def compare(
    kafka_port: int, kbroker_port: int, apis: tuple[str, ...] = (), report: Callable[[Compared], None] | None = None
) -> list[Compared]:
    """Ask both brokers everything that both serve."""
    theirs, ours = ranges(kafka_port), ranges(kbroker_port)
    found = []
    run = f"{time.time_ns():x}"
    for api in sorted(theirs.keys() & ours.keys() - LEFT_OUT):
        if apis and api not in apis:
            continue
        for version in theirs[api]:
            if version in ours[api]:
                found.append(_compared(api, version, kafka_port, kbroker_port, run))
                if report is not None:
                    report(found[-1])
    return found


def _compared(api: str, version: int, kafka_port: int, kbroker_port: int, run: str) -> Compared:
    kafka, kbroker = ask_all(kafka_port, api, version, run), ask_all(kbroker_port, api, version, run)
    lines = [
        f"question {number}{line}"
        for number, (expected, found) in enumerate(zip(kafka, kbroker, strict=True))
        for line in differing_parts(expected, found, "")
    ]
    meant = tuple(line for line in lines if is_on_purpose(api, line))
    return Compared(api, version, len(kafka), tuple(line for line in lines if line not in meant), meant)


def is_on_purpose(api: str, line: str) -> bool:
    """Whether a difference is one of ON_PURPOSE."""
    return any(each in ("*", api) and re.search(pattern, line) for each, pattern, _ in ON_PURPOSE)


def table(found: list[Compared]) -> Iterator[str]:
    """Lines of Markdown: API, versions, result."""
    yield "| API | versions | questions | result |"
    yield "|---|---|---|---|"
    by_api: dict[str, list[Compared]] = {}
    for each in found:
        by_api.setdefault(each.api, []).append(each)
    for api, rows in by_api.items():
        verdicts: dict[str, list[int]] = {}
        for row in rows:
            verdicts.setdefault(row.verdict, []).append(row.version)
        for verdict, versions in verdicts.items():
            asked = sum(row.questions for row in rows if row.version in versions)
            yield f"| {api} | {_runs(versions)} | {asked} | {verdict} |"


def _runs(versions: list[int]) -> str:
    runs: list[list[int]] = []
    for version in versions:
        if runs and version == runs[-1][-1] + 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def main() -> None:
    """Compare two running brokers."""
    kafka_port, kbroker_port, apis = int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:])

    def report(each: Compared) -> None:
        print(f"== {each.api} {each.version}: {each.verdict}", flush=True)
        for line in each.differing:
            print(f"   {line}"[:400], flush=True)

    found: list[Any] = compare(kafka_port, kbroker_port, apis, report)
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
