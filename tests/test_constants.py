"""Numbers that another place says already are asked of it: first versions of fields of the tables, positions in a batch
of `records/layout`, names of internal topics of `kbroker.types`.

Tests: `kbroker.protocol.schema` (`first_version`), `kbroker.records.layout`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kbroker
from kbroker._fast.records.record_batch import POSITIONS
from kbroker.schemas import families, family_messages, schema

PACKAGE = Path(kbroker.__file__).parent
# Where requests are answered and sent: what a version brings is asked for there.
ROOMS = ("handlers", "replication", "cluster", "gate", "client")
VERSION_NAME = re.compile(
    r"_?(FIRST_(?!BYTES).*|LAST_VERSION_.+|.*_(FROM|SINCE|UNTIL|BATCHED)|.*_VERSION_(OF|WITH|BY)_.*)$"
)
# What a version changed without a field, and the KIP or the server that did so.
NO_FIELD_SAYS = {
    "handlers/api_versions.py:LOWEST_LEVEL_0_FROM": "KIP-1014: features with level 0",
    "handlers/records/fetch.py:FIRST_VERSION_OF_BATCHES": "KIP-98: record batches",
    "handlers/groups/groups.py:_GROUP_ID_NOT_FOUND_FROM": "KIP-1043: an error code",
    "handlers/groups/groups.py:_KNOWN_MEMBER_ID_FROM": "KIP-394: an error code",
    "handlers/groups/groups.py:_SHARE_KEY_FROM": "KIP-932: a value",
    "handlers/records/log_offsets.py:FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE": "KIP-207: an error code",
    "handlers/topics/metadata.py:TOPIC_ID_REQUESTS_FROM": "KIP-516: what a field may say",
    "handlers/records/old_fetch.py:LAST_VERSION_OF_MAGIC_0": "KIP-32: messages with a time",
    "handlers/topics/partition_view.py:LISTENER_NOT_FOUND_FROM": "KIP-302: an error code",
    "handlers/topics/topics.py:TOPIC_DELETION_DISABLED_FROM": "an error code of Kafka 2.1",
    "handlers/transactions/transactional_offsets.py:FIRST_ABORTABLE_VERSION": "KIP-890: an error code",
    "handlers/transactions/transactional_offsets.py:FIRST_ADDING_VERSION": "KIP-890: what the request does",
    "handlers/transactions/transactional_produce.py:FIRST_ABORTABLE_VERSION": "KIP-890: an error code",
    "handlers/transactions/transactional_produce.py:FIRST_ADDING_VERSION": "KIP-890: what the request does",
}
NAMES_OF_TOPICS = re.compile(r"""["']__(consumer_offsets|transaction_state|share_group_state|cluster_metadata)["']""")


def modules(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    """The Python modules of these rooms, by their paths."""
    for room in rooms:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text(encoding="utf-8"))


def numbers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The whole numbers that a module gives names to."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for name, value in zip(names, values, strict=False):
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, int):
                    yield name.id, value.value


def test_versions_are_asked_of_the_tables() -> None:
    """A copied number would stay when a table is corrected, and nobody sees which field it stands for."""
    copied = {
        f"{path}:{name}"
        for path, tree in modules(*ROOMS)
        for name, value in numbers(tree)
        if VERSION_NAME.fullmatch(name) and value and name != "FIRST_VERSION"
    }
    assert copied == set(NO_FIELD_SAYS)


def test_no_version_is_compared_with_a_number() -> None:
    """A reader would have to look up what the version brought."""
    bare = [
        f"{path}:{node.lineno}"
        for path, tree in modules(*ROOMS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and re.fullmatch(r"(.*\.)?(api_)?version", ast.unparse(node.left))
        for other in node.comparators
        if isinstance(other, ast.Constant) and isinstance(other.value, int) and other.value > 0
        # The formats of znodes are no versions of an API.
        if path != "cluster/zookeeper/znodes.py"
    ]
    assert bare == []


def test_internal_topics_have_their_names_in_one_place() -> None:
    """A user's topic such as `__mine` would be taken for one of the broker's here, and not there."""
    paths = [path for suffix in ("py", "pyx", "pxd") for path in PACKAGE.rglob(f"*.{suffix}")]
    found = {
        str(path.relative_to(PACKAGE))
        for path in paths
        if NAMES_OF_TOPICS.search(path.read_text(encoding="utf-8"))
        or re.search(r'startswith\("__"\)', path.read_text())
    }
    assert found - {"telemetry/otlp.py"} == {"types.py"}


def test_positions_in_a_batch_stand_in_the_layout() -> None:
    """A look at the wrong byte is found late; 61 had eight names once."""
    known = {61, 57, 53, 51, 43, 35} | {POSITIONS["attributes"] + 1}
    named = [
        f"{path}:{name}"
        for path, tree in modules("storage", "records", "replication", "coordinator", "handlers")
        for name, value in numbers(tree)
        if value in known and re.search(r"POSITION|OFFSET|PLACE|OVERHEAD|HEADER", name)
    ]
    written = [
        f"{path.relative_to(PACKAGE)}: {match.group(0)}"
        for suffix in ("pyx", "pxd")
        for path in (PACKAGE / "_fast").rglob(f"*.{suffix}")
        if path.name != "layout.pxd"
        for match in re.finditer(r"\bdata \+ (16|17|21|22|23|27|35|43|51|53|57|61)\b|= 61\b", path.read_text())
    ]
    assert (named, written) == ([], [])


def test_a_table_says_from_which_version_on_it_has_a_field() -> None:
    """Handlers would serve a field too early or too late."""
    fetch = schema("FetchRequest")
    assert (fetch.first_version("session_id"), fetch.last_version("topics.topic")) == (7, 12)
    assert fetch.first_version("topics.partitions.last_fetched_epoch") == 12
    assert schema("LeaderAndIsrRequest").first_version("topic_states.partition_states.adding_replicas") == 3
    with pytest.raises(KeyError, match="rack"):
        fetch.first_version("topics.rack")


def test_every_field_of_every_table_can_be_asked_for() -> None:
    """A struct that several fields share would be left out."""
    for message in (message for family in families() for message in family_messages(family)):
        structs = {struct.name: struct.fields for struct in message.structs}
        paths = [((field.name,), field) for field in message.fields]
        while paths:
            path, field = paths.pop()
            if field.versions != "none":
                assert message.first_version(".".join(path)) == int(re.match(r"\d+", field.versions).group())  # type: ignore[union-attr]
            if len(path) < 5:
                paths += [((*path, each.name), each) for each in field.fields or structs.get(field.item_type, ())]
