"""Requests that decode and make little sense: extreme numbers, names twice, ids too long, in any order and version.

No handler fails, each answer can be encoded, what is refused leaves every group as it was, and what is in memory is
what a restart would find.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._fast.wire.codec import Struct
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_state import GroupState
from kbroker.errors import ErrorCode, KafkaError, MessageTooLargeError, NotLeaderOrFollowerError
from kbroker.protocol.schema import Field, parse_versions
from kbroker.schemas import message
from tests.coordinator.harness import T1_ID, World, subscription
from tests.coordinator.invariants import check_group, snapshot
from tests.coordinator.wire import HANDLERS, Client

LONG = "x" * 0x7FFF
KINDS = (
    ["JoinGroup"] * 5
    + ["SyncGroup"] * 3
    + ["OffsetCommit", "Heartbeat", "LeaveGroup"] * 2
    + ["OffsetFetch", "OffsetDelete", "DescribeGroups", "ListGroups", "DeleteGroups", "FindCoordinator"]
)

GROUPS = ("g", "g", "g", "g", "h", "", "\u00fc\U0001f600", LONG)
CLIENTS = ("probe", "probe", None, "", LONG, "\u00fc" * 0x3FFF)
# A member id that starts with * is looked up: the first, last or leading member of group g, or one not yet used.
MEMBERS = ("", "", "", "*first", "*last", "*leader", "*pending", "stranger", LONG)
TOPICS = ("t1", "t1", "t2", "nope", "", "__consumer_offsets")
SUBSCRIPTIONS = (b"", b"\0", b"\0\1\0\0\0\1", subscription("t1"), subscription("t1", "t1", "\u00fc"))
# By the name of the field; of those that are not here by type.
VALUES: dict[str, tuple[Any, ...]] = {
    "group_id": GROUPS,
    "groups_names": GROUPS,
    "groups": GROUPS,
    "coordinator_keys": GROUPS,
    "key": GROUPS,
    "key_type": (0, 0, 0, 1, 2, 3, -1),
    "member_id": MEMBERS,
    "group_instance_id": (None, None, None, "i", "j", "", LONG),
    "protocol_type": ("consumer", "consumer", "consumer", "consumer", "connect", "", LONG, None),
    "protocol_name": ("a", "a", "b", "", None),
    "JoinGroupRequestProtocol.name": ("a", "a", "a", "b", "c", "", LONG),
    "name": TOPICS,
    "topic_id": (T1_ID, bytes(16), b"\xff" * 16),
    "metadata": SUBSCRIPTIONS,
    "assignment": (b"", b"a", b"bb"),
    "session_timeout_ms": (10_000, 10_000, 10_000, 6_000, 1_800_000, 0, -1, 2**31 - 1, -(2**31)),
    "rebalance_timeout_ms": (10_000, 10_000, 0, -1, 2**31 - 1, -(2**31)),
    "generation_id": ("*now", "*now", "*now", -1, 0, 2**31 - 1, -(2**31)),
    "generation_id_or_member_epoch": ("*now", "*now", -1, -1, 0, 2**31 - 1, -(2**31)),
    "partition_index": (0, 0, 1, 2, 3, -1, 2**31 - 1),
    "partition_indexes": (0, 0, 1, 2, 3, -1, 2**31 - 1),
    "committed_metadata": ("m", "", None, "x" * 4096, "x" * 4097, "\u00fc" * 4096, LONG),
    "states_filter": ("Stable", "stable", "\u00dc", ""),
    "types_filter": ("classic", "CONSUMER", ""),
    "int8": (0, 1, -1, 127),
    "int16": (0, 1, -1, 2**15 - 1),
    "int32": (0, 1, -1, -(2**31), 2**31 - 1),
    "int64": (0, 1, -1, -(2**63), 2**63 - 1, 1_700_000_000_000),
    "bool": (False, True),
    "string": ("", "s", LONG),
}
FAILURES = (None, None, None, NotLeaderOrFollowerError(), MessageTooLargeError())
# Errors to the client that are steps forward for the group.
STEPS = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED})


class OddClients:
    """Draws requests, sends each by a connection of its own, and looks at the groups before and after."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.delay_ms = data.draw(st.sampled_from([0, 3_000]), label="initial delay")
        self.world = World({"group.initial.rebalance.delay.ms": self.delay_ms, "group.max.size": 3})
        self.waiting: list[Client] = []
        self.failed = False

    @property
    def groups(self) -> dict[str, Group]:
        return self.world.coordinator.registry.groups

    def state(self) -> dict[str, Any]:
        return {group_id: snapshot(group) for group_id, group in self.groups.items()}

    # Requests

    def struct(self, schema: Any, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
        return {
            field.name: self.value(schema, field, version)
            for field in fields
            if version in parse_versions(field.versions) or version in parse_versions(field.tagged)
        }

    def value(self, schema: Any, field: Field, version: int) -> Any:
        nullable = version in parse_versions(field.nullable)
        if not field.is_array:
            return self.scalar(schema, field, nullable)
        count = self.data.draw(st.integers(-1 if nullable else 0, 3))
        if count < 0:
            return None
        if not field.is_struct:
            return [self.scalar(schema, field, False) for _ in range(count)]
        made = getattr(schema, field.item_type)
        return [made(**self.struct(schema, field.fields, version)) for _ in range(count)]

    def scalar(self, schema: Any, field: Field, nullable: bool) -> Any:
        own = f"JoinGroupRequestProtocol.{field.name}"
        in_protocol = field in PROTOCOL_FIELDS and own in VALUES
        pool = VALUES[own] if in_protocol else VALUES.get(field.name, VALUES.get(field.item_type, ()))
        pool = pool if nullable else tuple(value for value in pool if value is not None)
        return self.resolved(self.data.draw(st.sampled_from(pool), label=field.name))

    def resolved(self, value: Any) -> Any:
        """What a value that starts with * stands for at this moment, in group g."""
        if not isinstance(value, str) or not value.startswith("*"):
            return value
        group = self.groups.get("g")
        if value == "*now":
            return 0 if group is None else group.generation_id
        known = [] if group is None else list(group.pending_joins if value == "*pending" else group.members)
        if value == "*leader" and group is not None and group.leader_id is not None:
            return group.leader_id
        return "gone" if not known else known[0] if value == "*first" else known[-1]

    def ask(self, name: str) -> None:
        schema = message(f"{name}Request")
        row = HANDLERS[schema.api_key]
        version = self.data.draw(st.integers(row.min_version, row.max_version), label=f"{name} version")
        fields = self.struct(schema, schema.schema.fields, version)
        client = Client(self.world, self.data.draw(st.sampled_from(CLIENTS), label="client id"))
        failure: KafkaError | None = self.data.draw(st.sampled_from(FAILURES), label="the log fails with")
        before = self.state()
        self.world.log.failure = failure
        client.send(name, version, **fields)
        self.world.log.failure = None
        self.failed |= failure is not None
        if client.waits:
            self.waiting.append(client)
            return
        codes = frozenset(error_codes(client.receive()))
        # Assignments that cannot be stored send the group back to its join phase, as in Kafka.
        moves_on = codes & STEPS or (name == "SyncGroup" and failure is not None)
        if codes and ErrorCode.NONE not in codes and not moves_on:
            assert self.state() == before, f"refused with {codes}, but the state has changed"

    # Between requests

    def pass_time(self) -> None:
        self.world.loop.advance(self.data.draw(st.sampled_from([0.0, 3.0, 11.0, 400.0, 10.0**6]), label="seconds"))

    def check(self) -> None:
        self.world.loop.advance(0.0)
        still = []
        for client in self.waiting:
            if client.waits:
                still.append(client)
            else:
                client.receive()
        self.waiting = still
        for group in self.groups.values():
            check_group(group)
        held = sum(m.awaits_join + m.awaits_sync for group in self.groups.values() for m in group.members.values())
        assert held == len(self.waiting), "a request waits that no member holds, or the other way round"

    def check_restart(self) -> None:
        """Groups that have not been stored since they changed are left out."""
        before = {group_id: group for group_id, group in self.groups.items() if group.offsets or group.generation_id}
        after = self.world.restarted().coordinator.registry.groups
        for group_id, group in before.items():
            if group.offsets:
                assert stored_offsets(after[group_id]) == stored_offsets(group)
            if group.state is GroupState.STABLE and not self.failed:
                assert after[group_id].generation_id == group.generation_id
                assert after[group_id].assignments() == group.assignments()


PROTOCOL_FIELDS = frozenset(
    nested
    for field in message("JoinGroupRequest").schema.fields
    if field.name == "protocols"
    for nested in field.fields
)


def stored_offsets(group: Group) -> dict[tuple[str, int], Any]:
    """Without the topic's id, which the record of a commit with a retention time cannot hold."""
    return {(topic, partition): committed[:-1] for topic, partition, committed in group.offsets}


def error_codes(answer: Any) -> list[int]:
    """All error codes in an answer."""
    if isinstance(answer, list):
        return [code for item in answer for code in error_codes(item)]
    if not isinstance(answer, Struct):
        return []
    found = []
    for name in vars(type(answer))["__slots__"]:
        value = getattr(answer, name)
        found += [value] if name == "error_code" else error_codes(value)
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_odd_requests_fail_whole_or_not_at_all(data: st.DataObject) -> None:
    """A request that fails half-way leaves a group that refuses its members for minutes."""
    clients = OddClients(data)
    for kind in data.draw(st.lists(st.sampled_from([*KINDS, "time"]), max_size=12), label="requests"):
        if kind == "time":
            clients.pass_time()
        else:
            clients.ask(kind)
        clients.check()
    clients.check_restart()
