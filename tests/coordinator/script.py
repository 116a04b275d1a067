"""Requests in a fixed order, whose answers by Apache Kafka 4.3.1 are in `vectors/kafka-4.3.1-answers.json`.

Kafka ran with group.initial.rebalance.delay.ms=0, four partitions of state and the topics t1 (3 partitions) and t2 (1).
"""

from __future__ import annotations

from typing import Any

from kbroker.schemas import message
from tests.coordinator.harness import subscription
from tests.coordinator.wire import Client

_UNKNOWN_ID = b"1" * 16


class Script:
    """Runs everything in `run` and keeps the answers by their labels."""

    def __init__(self, first: Client, second: Client) -> None:
        self.first = first
        self.second = second
        self.answers: dict[str, Any] = {}
        self.member = ""
        self.generation = 0

    def note(self, label: str, answer: Any) -> Any:
        assert label not in self.answers
        self.answers[label] = answer
        return answer

    def ask(self, label: str, name: str, version: int, **fields: Any) -> Any:
        return self.note(label, self.first.call(name, version, **fields))

    def ask_second(self, label: str, name: str, version: int, **fields: Any) -> Any:
        return self.note(label, self.second.call(name, version, **fields))

    def run(self) -> dict[str, Any]:
        self._find_coordinator()
        self._strangers()
        self._first_generation()
        self._describe_and_list()
        self._commits()
        self._fetches()
        self._deletions()
        self._leavers()
        self._second_member()
        self._empty_group()
        self._static_member()
        self._other_protocols()
        return self.answers

    def _find_coordinator(self) -> None:
        self.ask("find v4", "FindCoordinator", 4, key_type=0, coordinator_keys=["g"])
        self.ask("find v3", "FindCoordinator", 3, key_type=0, key="g")
        self.ask("find v0", "FindCoordinator", 0, key="g")
        self.ask("find empty", "FindCoordinator", 4, key_type=0, coordinator_keys=[""])
        self.ask("find bad type", "FindCoordinator", 4, key_type=7, coordinator_keys=["g"])
        self.ask("find share v5", "FindCoordinator", 5, key_type=2, coordinator_keys=["g"])
        self.ask("find share v6", "FindCoordinator", 6, key_type=2, coordinator_keys=["g"])
        self.ask("find bad type v3", "FindCoordinator", 3, key_type=7, key="g")

    def _strangers(self) -> None:
        self.ask("heartbeat unknown group", "Heartbeat", 4, group_id="g", generation_id=1, member_id="x")
        self.ask("heartbeat empty group", "Heartbeat", 4, group_id="", generation_id=1, member_id="x")
        self.ask("join empty group", "JoinGroup", 9, **join(group_id=""))
        self.ask("join bad session", "JoinGroup", 9, **join(session_timeout_ms=1))
        self.ask("join unknown member new group", "JoinGroup", 9, **join(member_id="zz"))
        self.ask("join no protocols new", "JoinGroup", 9, **join(group_id="gx", protocols=[]))
        self.ask("join empty type", "JoinGroup", 9, **join(group_id="gx", protocol_type=""))
        self.ask("join no protocols v0", "JoinGroup", 0, **join(group_id="gx", protocols=[]))
        self.ask("describe gx v5", "DescribeGroups", 5, groups=["gx"])

    def _first_generation(self) -> None:
        member = self.ask("join v9 no id", "JoinGroup", 9, **join()).member_id
        self.ask("describe pending v5", "DescribeGroups", 5, groups=["g"])
        self.ask("heartbeat pending", "Heartbeat", 4, group_id="g", generation_id=0, member_id=member)
        self.ask("sync pending", "SyncGroup", 5, **sync("g", 0, member))
        joined = self.ask("join v9", "JoinGroup", 9, **join(member_id=member))
        generation = joined.generation_id
        self.member, self.generation = member, generation
        self.ask_second("hb completing", "Heartbeat", 4, group_id="g", generation_id=generation, member_id=member)
        self.ask_second("describe completing", "DescribeGroups", 6, groups=["g"], include_authorized_operations=True)
        self.ask_second("commit completing", "OffsetCommit", 9, **self._commit(("t1", 0, 5, "m")))
        self.ask("sync bad gen", "SyncGroup", 5, **sync("g", generation + 1, member))
        self.ask("sync bad proto", "SyncGroup", 5, **sync("g", generation, member, protocol_name="rr"))
        self.ask("sync no proto", "SyncGroup", 5, group_id="g", generation_id=generation, member_id=member)
        self.ask("sync unknown", "SyncGroup", 5, **sync("g", generation, "zz"))
        self.ask("sync unknown group", "SyncGroup", 5, **sync("nog", generation, "zz"))
        self.ask("sync empty group", "SyncGroup", 5, **sync("", generation, "zz"))
        self.ask("rejoin same in completing", "JoinGroup", 9, **join(member_id=member))
        self.ask("sync", "SyncGroup", 5, **sync("g", generation, member, {member: b"AAA"}))
        self.ask("sync again", "SyncGroup", 5, **sync("g", generation, member))
        beat = {"group_id": "g", "generation_id": generation, "member_id": member}
        self.ask("hb stable", "Heartbeat", 4, **beat)
        self.ask("hb bad gen", "Heartbeat", 4, **(beat | {"generation_id": generation + 3}))
        self.ask("hb unknown", "Heartbeat", 4, **(beat | {"member_id": "q"}))
        self.ask("hb instance unknown", "Heartbeat", 4, **beat, group_instance_id="i")

    def _describe_and_list(self) -> None:
        self.ask("describe stable", "DescribeGroups", 6, groups=["g", "nog", ""])
        self.ask("describe nog v5", "DescribeGroups", 5, groups=["nog"], include_authorized_operations=True)
        self.ask("list v5", "ListGroups", 5)
        self.ask("list v4", "ListGroups", 4, states_filter=["stable"])
        self.ask("list v4 bad", "ListGroups", 4, states_filter=["foo"])
        self.ask("list type classic", "ListGroups", 5, types_filter=["Classic"])
        self.ask("list type consumer", "ListGroups", 5, types_filter=["consumer"])
        self.ask("list type foo", "ListGroups", 5, types_filter=["foo"])

    def _commits(self) -> None:
        place = ("t1", 0, 5, "meta")
        several = [place, ("t1", 1, 6, None), ("t1", 9, 6, ""), ("nope", 0, 1, ""), ("t2", 0, 1, "x" * 5_000)]
        simple = {"generation_id_or_member_epoch": -1, "member_id": ""}
        self.ask("commit ok", "OffsetCommit", 9, **self._commit(*several))
        late = self._commit(place) | {"generation_id_or_member_epoch": self.generation + 1}
        self.ask("commit bad gen", "OffsetCommit", 9, **late)
        self.ask("commit unknown member", "OffsetCommit", 9, **(self._commit(place) | {"member_id": "zz"}))
        self.ask("commit simple to active", "OffsetCommit", 9, **(self._commit(place) | simple))
        without = self._commit(place) | {"generation_id_or_member_epoch": -1}
        self.ask("commit gen -1 with member", "OffsetCommit", 9, **without)
        stranger = {"group_id": "nog", "generation_id_or_member_epoch": 3, "member_id": "a"}
        self.ask("commit nogroup gen 3 v9", "OffsetCommit", 9, **(self._commit(place) | stranger))
        self.ask("commit nogroup gen 3 v8", "OffsetCommit", 8, **(self._commit(place) | stranger))
        for label, version, group_id, offset in (
            ("commit simple", 9, "simple", 77),
            ("commit simple empty group", 9, "", 78),
            ("commit retention v2", 2, "simple2", 79),
        ):
            fields = self._commit(("t1", 2, offset, "")) | simple | {"group_id": group_id}
            self.ask(label, "OffsetCommit", version, **fields)
        request = message("OffsetCommitRequest")
        by_id = request.OffsetCommitRequestTopic(
            topic_id=_UNKNOWN_ID,
            partitions=[request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
        )
        self.ask("commit simple v10", "OffsetCommit", 10, **simple, group_id="simple", topics=[by_id])
        self.ask("commit no topics", "OffsetCommit", 9, **self._commit())

    def _fetches(self) -> None:
        request = message("OffsetFetchRequest")
        topic, group, topics = (
            request.OffsetFetchRequestTopic,
            request.OffsetFetchRequestGroup,
            request.OffsetFetchRequestTopics,
        )
        asked = [topic(name="t1", partition_indexes=[0, 1, 2, 9]), topic(name="nope", partition_indexes=[0])]
        self.ask("fetch v7", "OffsetFetch", 7, group_id="g", topics=asked, require_stable=True)
        self.ask("fetch v7 all", "OffsetFetch", 7, group_id="g", topics=None)
        one = [topic(name="t1", partition_indexes=[0])]
        self.ask("fetch v1 nog", "OffsetFetch", 1, group_id="nog", topics=one)
        self.ask("fetch v7 empty group", "OffsetFetch", 7, group_id="", topics=None)
        first = [topics(name="t1", partition_indexes=[0])]
        asked_groups = [
            group(group_id="g", topics=None),
            group(group_id="nog", topics=None),
            group(group_id="g", member_id="zz", member_epoch=9, topics=first),
            group(group_id="simple", topics=[topics(name="t1", partition_indexes=[2])]),
        ]
        self.ask("fetch v9", "OffsetFetch", 9, groups=asked_groups)
        unknown = [topics(topic_id=_UNKNOWN_ID, partition_indexes=[0])]
        self.ask("fetch v10", "OffsetFetch", 10, groups=[group(group_id="g", topics=unknown)])

    def _deletions(self) -> None:
        self.ask("odelete nog", "OffsetDelete", 0, **offset_delete("nog", t1=[0]))
        self.ask("odelete empty", "OffsetDelete", 0, **offset_delete("", t1=[0]))
        self.ask("odelete subscribed", "OffsetDelete", 0, **offset_delete("g", t1=[0, 9], nope=[1], t2=[0]))
        self.ask("odelete simple", "OffsetDelete", 0, **offset_delete("simple", t1=[0, 2]))
        self.ask("delete groups", "DeleteGroups", 2, groups_names=["g", "nog", "", "simple2"])

    def _leavers(self) -> None:
        self.ask("leave v0 unknown", "LeaveGroup", 0, group_id="g", member_id="zz")
        self.ask("leave v2 nog", "LeaveGroup", 2, group_id="nog", member_id="zz")
        self.ask("leave v3 nog", "LeaveGroup", 3, **leave("nog", ("zz", None)))
        self.ask("leave v3 empty", "LeaveGroup", 3, **leave("", ("zz", None)))
        mixed = leave("g", ("zz", None), ("", "inst"), (self.member, "inst"))
        self.ask("leave v3 mixed", "LeaveGroup", 5, **mixed)

    def _second_member(self) -> None:
        member = self.member
        self.ask("join wrong type", "JoinGroup", 3, **join(protocol_type="connect"))
        self.ask("join wrong proto", "JoinGroup", 3, **join(protocols=[protocol("other", b"")]))
        self.second.send("JoinGroup", 3, **join())
        beat = {"group_id": "g", "generation_id": self.generation, "member_id": member}
        self.ask("hb rebalancing", "Heartbeat", 4, **beat)
        self.ask("describe preparing", "DescribeGroups", 5, groups=["g"])
        self.ask("sync preparing", "SyncGroup", 5, **sync("g", self.generation, member))
        self.ask("commit preparing", "OffsetCommit", 9, **self._commit(("t1", 0, 8, "")))
        assert self.second.waits
        joined = self.ask("leader rejoined", "JoinGroup", 9, **join(member_id=member, reason="because"))
        second = self.note("second joined v3", self.second.receive()).member_id
        generation = self.generation = joined.generation_id
        self.second.send("SyncGroup", 3, group_id="g", generation_id=generation, member_id=second)
        assert self.second.waits
        self.ask("leader sync", "SyncGroup", 5, **sync("g", generation, member, {member: b"AAA"}))
        self.note("second sync", self.second.receive())
        self.ask_second("follower rejoin same", "JoinGroup", 3, **join(member_id=second))
        self.ask_second("leave second v2", "LeaveGroup", 2, group_id="g", member_id=second)
        self.generation = self.ask("alone", "JoinGroup", 9, **join(member_id=member)).generation_id
        self.ask("sync alone", "SyncGroup", 5, **sync("g", self.generation, member, {member: b"AAA"}))

    def _empty_group(self) -> None:
        member, generation = self.member, self.generation
        self.ask("leave last", "LeaveGroup", 5, **leave("g", (member, None)))
        self.ask("describe empty", "DescribeGroups", 6, groups=["g"])
        self.ask("join old id empty", "JoinGroup", 9, **join(member_id=member))
        self.ask("hb empty", "Heartbeat", 4, group_id="g", generation_id=generation, member_id=member)
        self.ask("sync empty", "SyncGroup", 5, **sync("g", generation, member))
        simple = {"generation_id_or_member_epoch": -1, "member_id": ""}
        self.ask("commit empty simple", "OffsetCommit", 9, **(self._commit(("t1", 0, 9, "")) | simple))
        self.ask("commit empty with member", "OffsetCommit", 9, **self._commit(("t1", 0, 9, "")))

    def _static_member(self) -> None:
        static = join(group_id="s", group_instance_id="i1")
        joined = self.ask("static join", "JoinGroup", 9, **static)
        old, generation = joined.member_id, joined.generation_id
        self.ask("static sync", "SyncGroup", 5, **sync("s", generation, old, {old: b"X"}, group_instance_id="i1"))
        self.ask("static rejoin v9", "JoinGroup", 9, **static)
        who = {"group_id": "s", "generation_id": generation, "member_id": old, "group_instance_id": "i1"}
        self.ask("fenced hb", "Heartbeat", 4, **who)
        commit = self._commit(("t1", 0, 9, "")) | {"group_id": "s", "group_instance_id": "i1", "member_id": old}
        commit["generation_id_or_member_epoch"] = generation
        self.ask("fenced commit", "OffsetCommit", 9, **commit)
        self.ask("fenced sync", "SyncGroup", 5, **sync("s", generation, old, group_instance_id="i1"))
        self.ask("fenced join", "JoinGroup", 9, **(static | {"member_id": old}))
        self.ask("fenced leave", "LeaveGroup", 5, **leave("s", (old, "i1")))
        self.ask("static rejoin v8", "JoinGroup", 8, **static)
        self.ask("describe static", "DescribeGroups", 6, groups=["s"])
        self.ask("static leave by instance", "LeaveGroup", 5, **leave("s", ("", "i1")))
        self.ask("describe static after", "DescribeGroups", 6, groups=["s"])

    def _other_protocols(self) -> None:
        offers = [protocol("a", b"1"), protocol("b", b"2")]
        joined = self.ask("connect", "JoinGroup", 3, **join(group_id="conn", protocol_type="connect", protocols=offers))
        who = {"generation_id": joined.generation_id, "member_id": joined.member_id}
        self.ask("sync leader left out", "SyncGroup", 3, group_id="conn", **who)
        self.ask("odelete connect", "OffsetDelete", 0, **offset_delete("conn", t1=[0]))
        self.ask("describe connect", "DescribeGroups", 6, groups=["conn"])
        self.ask_second("join v0", "JoinGroup", 0, **join(group_id="g0", protocols=[protocol("range", b"\0")]))

    def _commit(self, *places: tuple[str, int, int, str | None]) -> dict[str, Any]:
        request = message("OffsetCommitRequest")
        topics: dict[str, list[Any]] = {}
        for name, partition, offset, metadata in places:
            topics.setdefault(name, []).append(
                request.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        return {
            "group_id": "g",
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member,
            "topics": [request.OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        }


def protocol(name: str, metadata: bytes) -> Any:
    return message("JoinGroupRequest").JoinGroupRequestProtocol(name=name, metadata=metadata)


def join(**fields: Any) -> dict[str, Any]:
    values = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [protocol("range", subscription("t1"))],
    }
    return values | fields


def sync(
    group_id: str, generation_id: int, member_id: str, assignments: dict[str, bytes] | None = None, **fields: Any
) -> dict[str, Any]:
    assignment = message("SyncGroupRequest").SyncGroupRequestAssignment
    values = {
        "group_id": group_id,
        "generation_id": generation_id,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [assignment(member_id=each, assignment=data) for each, data in (assignments or {}).items()],
    }
    return values | fields


def leave(group_id: str, *members: tuple[str, str | None]) -> dict[str, Any]:
    identity = message("LeaveGroupRequest").MemberIdentity
    who = [identity(member_id=member_id, group_instance_id=instance_id) for member_id, instance_id in members]
    return {"group_id": group_id, "members": who}


def offset_delete(group_id: str, **topics: list[int]) -> dict[str, Any]:
    request = message("OffsetDeleteRequest")
    return {
        "group_id": group_id,
        "topics": [
            request.OffsetDeleteRequestTopic(
                name=name, partitions=[request.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics.items()
        ],
    }
