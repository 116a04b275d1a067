"""Where kbroker's answers differ from Apache Kafka's on purpose, each with its reason.

A difference names a scenario, the steps (a pattern), and the parts of the answer (paths such as
`topics[]/error_message`; none for the whole answer).  Those parts are left out of the comparison; everything else must
be equal.  `docs/compatibility.md` tells users the same, reason by reason, and a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

STEP = re.compile(r"(\w+)(\[(?:(\w+)=([^]]*))?])?")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference that is meant."""

    scenario: str
    steps: str
    paths: tuple[str, ...]
    reason: str


OLD_VERSIONS = (
    "Versions that Kafka 4 has dropped are still answered as Kafka 3.9.1 answers them: Produce, Fetch, "
    "ListOffsets, OffsetForLeaderEpoch, CreateTopics, DeleteTopics, DescribeConfigs, OffsetCommit and OffsetFetch from "
    "version 0."
)
NO_ANSWER = (
    "A Produce request whose records are null gets INVALID_RECORD (87); Kafka never answers it, and its client waits "
    "until it times out."
)
OFFSET_DELTAS = (
    "An uncompressed batch whose records are not numbered 0, 1, 2, … is refused with INVALID_RECORD (87); Kafka takes "
    "it, and consumers then meet offsets twice or never."
)
BAD_COMPRESSION = (
    "A compressed batch that cannot be decompressed, or is numbered wrongly inside, is refused with INVALID_RECORD "
    "(87), one with an unknown codec with UNSUPPORTED_COMPRESSION_TYPE (76); Kafka answers UNKNOWN_SERVER_ERROR (-1), "
    "which clients take for passing and send again."
)
PARTITION_TWICE = (
    "A partition named twice in one Produce request is written twice, in order, and answered twice; Kafka drops one "
    "of the two batches without a word."
)
COORDINATOR_TYPE = (
    "FindCoordinator for a kind of coordinator that does not exist names the kind in its text; Kafka's text is a "
    "general one."
)
MAGIC = (
    "A batch of a format that does not exist (magic 3) is CORRUPT_MESSAGE (2) like any other damage, without a text of "
    "its own."
)
NO_TIMES = (
    "The record with the largest timestamp, asked for by ListOffsets, does not exist where no record has a timestamp; "
    "Kafka names the first record."
)
OLD_RANGES = tuple(
    f"api_keys/{api}"
    for api in (
        "Fetch",
        "ListOffsets",
        "OffsetForLeaderEpoch",
        "CreateTopics",
        "DeleteTopics",
        "DescribeConfigs",
        "OffsetCommit",
        "OffsetFetch",
    )
)
REFUSED = ("error_code", "base_offset", "log_start_offset")
REFUSED_PATHS = tuple(f"responses[]/partition_responses[]/{name}" for name in REFUSED)

DIFFERENCES: tuple[Difference, ...] = (
    Difference("versions.*", "*", OLD_RANGES, OLD_VERSIONS),
    Difference("versions.unknown_apis_and_versions", "create topics v1", (), OLD_VERSIONS),
    Difference("versions.unknown_apis_and_versions", "list offsets v0", (), OLD_VERSIONS),
    Difference("versions.unknown_apis_and_versions", "fetch v3", (), OLD_VERSIONS),
    Difference("versions.produce_versions_of_the_old_formats", "*", (), OLD_VERSIONS),
    Difference("produce.broken_batches", "magic [3-]*", ("responses[]/partition_responses[]/error_message",), MAGIC),
    Difference("list_offsets.at_times", "max of records without time", (), NO_TIMES),
    Difference("produce.broken_batches", "null", (), NO_ANSWER),
    Difference("produce.broken_batches", "offset deltas *", REFUSED_PATHS, OFFSET_DELTAS),
    Difference(
        "produce.broken_batches",
        "ends",
        ("topics[]/partitions[offset=2]", "topics[]/partitions[offset=0]"),
        OFFSET_DELTAS,
    ),
    Difference("produce.broken_batches", "unknown codec", REFUSED_PATHS, BAD_COMPRESSION),
    Difference("produce.broken_batches", "* that is none", REFUSED_PATHS, BAD_COMPRESSION),
    Difference("produce.broken_batches", "* cut off", REFUSED_PATHS, BAD_COMPRESSION),
    Difference("produce.compressed", "gzip, out of order", REFUSED_PATHS, BAD_COMPRESSION),
    Difference("produce.several_partitions_at_once", "one partition twice", (), PARTITION_TWICE),
    Difference(
        "produce.several_partitions_at_once", "ends", ("topics[]/partitions[partition_index=0]",), PARTITION_TWICE
    ),
    Difference(
        "groups.find_coordinators_of_odd_things",
        "a kind that is not*",
        ("error_message", "coordinators[]/error_message"),
        COORDINATOR_TYPE,
    ),
)


def masked(scenario: str, step: str, answer: Any) -> Any:
    """The answer without the parts that are meant to differ."""
    for difference in DIFFERENCES:
        if fnmatchcase(scenario, difference.scenario) and fnmatchcase(step, difference.steps):
            if not difference.paths:
                return "differs on purpose"
            for path in difference.paths:
                answer = _without(answer, path.split("/"))
    return answer


def _without(value: Any, path: list[str]) -> Any:
    """A copy of `value` without what lies at `path`; `name[]` is every item, `name[field=value]` those that match."""
    match = STEP.fullmatch(path[0])
    assert match is not None, path
    key, many, field, wanted = match.groups()
    if not isinstance(value, dict) or key not in value:
        return value
    rest = path[1:]
    if many is None:
        return {**value, key: _without(value[key], rest)} if rest else {k: v for k, v in value.items() if k != key}
    kept = []
    for item in value[key]:
        chosen = field is None or str(item.get(field)) == wanted
        if not chosen:
            kept.append(item)
        elif rest:
            kept.append(_without(item, rest))
    return {**value, key: kept}


def reasons() -> Iterable[str]:
    """Every reason, once."""
    return dict.fromkeys(difference.reason for difference in DIFFERENCES)
