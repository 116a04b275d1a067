"""Requests about consumer groups in a fixed order, whose answers by Apache Kafka 4.3.1 are in
`../vectors/kafka-4.3.1-consumer-group-answers.json`.

Kafka ran with group.consumer.assignment.interval.ms=0, group.initial.rebalance.delay.ms=0, four partitions of state and
the topics t1 (3 partitions) and t2 (1).  `python -m tests.coordinator.consumer.record_answers` asks it again.

Members have ids of one letter: Kafka looks at them in the order of Java's hash table, which is that of the alphabet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from kbroker.schemas import message
from tests.coordinator.harness import subscription
from tests.coordinator.wire import plain


class Caller(Protocol):
    """A connection: one request after the other."""

    def call(self, name: str, version: int, **fields: Any) -> Any:
        """Send a request; the answer."""


class ConsumerScript:
    """Runs everything in `run` and keeps the answers by their labels.  `pause` lets work on other threads finish."""

    def __init__(self, caller: Caller, topic_ids: Mapping[str, bytes], pause: Callable[[], None]) -> None:
        self.caller = caller
        self.ids = topic_ids
        self.pause = pause
        self.answers: dict[str, Any] = {}

    def ask(self, label: str, name: str, version: int, **fields: Any) -> Any:
        assert label not in self.answers
        answer = self.answers[label] = self.caller.call(name, version, **fields)
        return answer

    def beat(self, label: str, member: str, epoch: int, version: int = 1, **fields: Any) -> Any:
        owned = fields.pop("owned", None)
        if owned is not None:
            row = message("ConsumerGroupHeartbeatRequest").TopicPartitions
            owned = [row(topic_id=self.ids[name], partitions=partitions) for name, partitions in owned.items()]
        values = {"group_id": "g", "member_id": member, "member_epoch": epoch, "topic_partitions": owned}
        return self.ask(label, "ConsumerGroupHeartbeat", version, **(values | fields))

    def join(self, label: str, member: str, **fields: Any) -> Any:
        values = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t1"], "owned": {}}
        return self.beat(label, member, 0, **(values | fields))

    def run(self) -> dict[str, Any]:
        self._refused()
        self._two_members()
        self._offsets()
        self._seen()
        self._static()
        self._ends()
        self._regex()
        self._migration()
        self._stays()
        return self.answers

    def plain(self) -> dict[str, Any]:
        """The answers as JSON has them, topics by name."""
        names = {topic_id.hex(): f"id of {name}" for name, topic_id in self.ids.items()}

        def named(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: named(each) for key, each in value.items()}
            if isinstance(value, list):
                return sorted((named(each) for each in value), key=partial(json.dumps, sort_keys=True))
            return names.get(value, value) if isinstance(value, str) else value

        return {label: named(plain(answer)) for label, answer in self.answers.items()}

    def _refused(self) -> None:
        self.join("join without group", "a", group_id="")
        self.join("join without id v1", "")
        self.beat("beat without id v0", "", 3, 0)
        self.beat("beat unknown group", "a", 3)
        self.beat("leave unknown group", "a", -1)
        self.join("join without timeout", "a", rebalance_timeout_ms=-1)
        self.join("join that owns", "a", owned={"t1": [0]})
        self.join("join owning null", "a", owned=None)
        self.join("join without subscription", "a", subscribed_topic_names=None)
        self.join("join bad assignor", "a", server_assignor="sticky")
        self.join("join empty instance", "a", instance_id="")
        self.beat("bad epoch", "a", -3)
        self.beat("static leave without instance", "a", -2)
        self.join("bad regex", "a", subscribed_topic_names=[], subscribed_topic_regex="(a")
        self.ask("describe refused", "ConsumerGroupDescribe", 1, group_ids=["g", ""])

    def _two_members(self) -> None:
        a = self.join("a joins", "a").member_epoch
        self.beat("a again", "a", a)
        self.beat("a full", "a", a, rebalance_timeout_ms=60_000, subscribed_topic_names=["t1"], owned={"t1": [0, 1, 2]})
        self.ask("describe one", "ConsumerGroupDescribe", 1, group_ids=["g"])
        b = self.join("b joins", "b").member_epoch
        self.ask("describe assigning", "ConsumerGroupDescribe", 1, group_ids=["g"], include_authorized_operations=True)
        self.beat("b waits", "b", b)
        told = self.beat("a is asked to revoke", "a", a)
        kept = sorted(told.assignment.topic_partitions[0].partitions)
        self.ask("describe revoking", "ConsumerGroupDescribe", 1, group_ids=["g"])
        self.beat("a still owns", "a", a, owned={"t1": [0, 1, 2]})
        self.beat("b still waits", "b", b)
        self.epoch = self.beat("a has revoked", "a", a, owned={"t1": kept}).member_epoch
        self.kept = kept
        self.beat("b gains", "b", b)
        self.beat("b confirms", "b", b, owned={"t1": [index for index in range(3) if index not in kept]})
        self.beat("a one epoch behind", "a", a, owned={"t1": kept})
        self.beat("a one epoch behind without owned", "a", a)
        self.beat("a ahead", "a", self.epoch + 1)
        self.beat("stranger", "z", self.epoch)

    def commit(self, label: str, version: int, epoch: int, member: str, partition: int, group: str = "g") -> None:
        request = message("OffsetCommitRequest")
        topic = request.OffsetCommitRequestTopic(
            name="t1",
            topic_id=self.ids["t1"],
            partitions=[request.OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)],
        )
        self.ask(
            label,
            "OffsetCommit",
            version,
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[topic],
        )

    def fetch(self, label: str, member: str | None, epoch: int) -> None:
        request = message("OffsetFetchRequest")
        topic = request.OffsetFetchRequestTopics(name="t1", partition_indexes=[0, 1, 2])
        group = request.OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch, topics=[topic])
        self.ask(label, "OffsetFetch", 9, groups=[group])

    def _offsets(self) -> None:
        mine, others = self.kept[0], next(index for index in range(3) if index not in self.kept)
        self.commit("commit", 9, self.epoch, "a", mine)
        self.commit("commit of another's", 9, self.epoch, "a", others)
        self.commit("commit late", 9, self.epoch - 1, "a", mine)
        self.commit("commit late of another's", 9, self.epoch - 1, "a", others)
        self.commit("commit too late", 9, 0, "a", mine)
        self.commit("commit ahead", 9, self.epoch + 1, "a", mine)
        self.commit("commit of a stranger", 9, self.epoch, "z", mine)
        self.commit("commit of nobody", 9, -1, "", mine)
        self.commit("commit v8", 8, self.epoch, "a", mine)
        self.commit("commit v10", 10, self.epoch, "a", mine)
        self.fetch("fetch", "a", self.epoch)
        self.fetch("fetch late", "a", self.epoch - 1)
        self.fetch("fetch of a stranger", "z", self.epoch)
        self.fetch("fetch of nobody", None, -1)
        request = message("OffsetDeleteRequest")
        partition = request.OffsetDeleteRequestPartition(partition_index=mine)
        topics = [request.OffsetDeleteRequestTopic(name=name, partitions=[partition]) for name in ("t1", "t2")]
        self.ask("delete offsets", "OffsetDelete", 0, group_id="g", topics=topics)

    def _seen(self) -> None:
        self.ask("describe stable v0", "ConsumerGroupDescribe", 0, group_ids=["g"])
        self.ask("describe stable v1", "ConsumerGroupDescribe", 1, group_ids=["g", "nope"])
        self.ask("describe as classic v5", "DescribeGroups", 5, groups=["g"])
        self.ask("describe as classic v6", "DescribeGroups", 6, groups=["g"])
        self.ask("list", "ListGroups", 5)
        self.ask("list consumer", "ListGroups", 5, types_filter=["consumer"])
        self.ask("list classic", "ListGroups", 5, types_filter=["classic"])
        self.ask("list stable", "ListGroups", 5, states_filter=["stable"])
        self.ask("list reconciling", "ListGroups", 4, states_filter=["Reconciling"])
        self.ask("delete with members", "DeleteGroups", 2, groups_names=["g"])
        self.ask("classic heartbeat", "Heartbeat", 4, group_id="g", member_id="a", generation_id=self.epoch)
        self.ask("classic sync", "SyncGroup", 4, group_id="g", member_id="a", generation_id=self.epoch)
        protocol = message("JoinGroupRequest").JoinGroupRequestProtocol(name="x", metadata=b"")
        other = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocols": [protocol]}
        self.ask("join of another type", "JoinGroup", 9, group_id="g", protocol_type="connect", **other)

    def _static(self) -> None:
        self.join("c joins as i", "c", instance_id="i")
        self.join("d takes i", "d", instance_id="i")
        self.beat("c rests", "c", -2, instance_id="i")
        self.ask("describe resting", "ConsumerGroupDescribe", 1, group_ids=["g"])
        d = self.join("d takes i now", "d", instance_id="i").member_epoch
        self.beat("c is fenced", "c", d, instance_id="i")
        self.beat("no such instance", "d", d, instance_id="j")
        self.ask("describe static", "ConsumerGroupDescribe", 1, group_ids=["g"])
        self.beat("d leaves", "d", -1, instance_id="i")

    def _ends(self) -> None:
        self.beat("b leaves", "b", -1)
        self.beat("b leaves again", "b", -1)
        self.beat("a gets all", "a", self.epoch, owned={"t1": self.kept})
        member = message("LeaveGroupRequest").MemberIdentity
        self.ask("classic leave", "LeaveGroup", 5, group_id="g", members=[member(member_id="q"), member(member_id="a")])
        self.ask("describe empty", "ConsumerGroupDescribe", 1, group_ids=["g"])
        self.commit("commit to an empty group", 9, -1, "", 0)
        self.ask("delete", "DeleteGroups", 2, groups_names=["g"])
        self.ask("describe deleted", "ConsumerGroupDescribe", 1, group_ids=["g"])

    def _regex(self) -> None:
        regex = {"group_id": "r", "subscribed_topic_names": [], "subscribed_topic_regex": "t[12]"}
        epoch = self.join("regex joins", "a", **regex).member_epoch
        self.pause()
        epoch = self.beat("regex beat", "a", epoch, group_id="r").member_epoch
        self.beat("regex beat again", "a", epoch, group_id="r")
        self.ask("describe regex", "ConsumerGroupDescribe", 1, group_ids=["r"])
        self.beat("regex replaced", "a", epoch, group_id="r", subscribed_topic_regex="", subscribed_topic_names=["t2"])
        self.ask("describe replaced regex", "ConsumerGroupDescribe", 1, group_ids=["r"])
        self.beat("regex leaves", "a", -1, group_id="r")

    def _classic_join(self, label: str, member: str) -> Any:
        protocol = message("JoinGroupRequest").JoinGroupRequestProtocol(name="range", metadata=subscription("t1"))
        return self.ask(
            label,
            "JoinGroup",
            9,
            group_id="m",
            member_id=member,
            protocol_type="consumer",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocols=[protocol],
        )

    def _classic_sync(self, label: str, member: str, generation: int, assignment: bytes | None = None) -> Any:
        each = message("SyncGroupRequest").SyncGroupRequestAssignment
        assignments = [] if assignment is None else [each(member_id=member, assignment=assignment)]
        return self.ask(
            label,
            "SyncGroup",
            5,
            group_id="m",
            member_id=member,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )

    def _migration(self) -> None:
        member = self._classic_join("classic asks for an id", "").member_id
        generation = self._classic_join("classic joins", member).generation_id
        assigned = message("ConsumerProtocolAssignment")
        row = assigned.TopicPartition(topic="t1", partitions=[0, 1, 2])
        data = b"\0\0" + bytes(assigned.program(0).encode(assigned(assigned_partitions=[row])))
        self._classic_sync("classic syncs", member, generation, data)
        self.beat("beat to a classic group", "n", 3, group_id="m")
        epoch = self.join("upgrade", "n", group_id="m").member_epoch
        self.ask("describe upgraded", "ConsumerGroupDescribe", 1, group_ids=["m"])
        beat = {"group_id": "m", "member_id": member}
        self.ask("classic is asked to join", "Heartbeat", 4, **beat, generation_id=generation)
        joined = self._classic_join("classic joins a consumer group", member)
        self._classic_sync("classic gets less", member, joined.generation_id)
        self.ask("describe migrating", "ConsumerGroupDescribe", 1, group_ids=["m"])
        self.ask("classic beat", "Heartbeat", 4, **beat, generation_id=joined.generation_id)
        self.ask("classic old generation", "Heartbeat", 4, **beat, generation_id=joined.generation_id - 1)
        self.beat("new member", "n", epoch, group_id="m")
        self.commit("classic commit", 9, joined.generation_id, member, 0, "m")
        self.commit("classic commit of an old generation", 9, joined.generation_id - 5, member, 0, "m")
        joined = self._classic_join("classic joins once more", member)
        self._classic_sync("classic syncs once more", member, joined.generation_id)
        self.beat("new member again", "n", epoch, group_id="m")
        self.ask("describe migrated", "ConsumerGroupDescribe", 1, group_ids=["m"])
        self.beat("downgrade", "n", -1, group_id="m")
        self.ask("describe downgraded", "DescribeGroups", 6, groups=["m"])
        self.ask("describe downgraded as new", "ConsumerGroupDescribe", 1, group_ids=["m"])
        joined = self._classic_join("classic joins the classic group", member)
        self._classic_sync("classic syncs in the classic group", member, joined.generation_id, data)
        self.ask("list at the end", "ListGroups", 5)

    def _stays(self) -> None:
        """A group that is half way through a rebalance when the broker stops."""
        a = self.join("k: a joins", "a", group_id="k", rack_id="r1").member_epoch
        b = self.join("k: b joins", "b", group_id="k", instance_id="i", server_assignor="uniform").member_epoch
        self.beat("k: a revokes", "a", a, group_id="k")
        regex = {"group_id": "k", "subscribed_topic_names": [], "subscribed_topic_regex": "t2"}
        self.join("k: c joins", "c", **regex)
        self.pause()
        self.beat("k: b", "b", b, group_id="k", instance_id="i")
        self.commit("k: commit", 9, a, "a", 0, "k")
        self.ask("k: describe", "ConsumerGroupDescribe", 1, group_ids=["k"])
