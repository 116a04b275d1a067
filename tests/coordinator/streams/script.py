"""Requests about streams groups in a fixed order, whose answers by Apache Kafka 4.3.1 are in
`../vectors/kafka-4.3.1-streams-group-answers.json`.

Kafka ran with group.streams.assignment.interval.ms=0, group.streams.initial.rebalance.delay.ms=0,
group.streams.num.standby.replicas=1, group.initial.rebalance.delay.ms=0, four partitions of state and the topics t1 (3
partitions) and t2 (1).  `python -m tests.coordinator.streams.record_answers` asks it again.

Members and processes have ids of one letter: Kafka looks at them in the order of Java's hash table, which is that of
the alphabet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from kbroker.schemas import message
from tests.coordinator.harness import subscription
from tests.coordinator.wire import plain

MISSING = "Internal topics are missing: "
Tasks = Mapping[str, list[int]]


class Caller(Protocol):
    """A connection: one request after the other."""

    def call(self, name: str, version: int, **fields: Any) -> Any:
        """Send a request; the answer."""


class StreamsScript:
    """Runs everything in `run` and keeps the answers by their labels.  `pause` lets topics be made."""

    def __init__(self, caller: Caller, topic_ids: Mapping[str, bytes], pause: Callable[[], None]) -> None:
        self.caller = caller
        self.ids = topic_ids
        self.pause = pause
        self.answers: dict[str, Any] = {}
        self.request = message("StreamsGroupHeartbeatRequest")

    def ask(self, label: str, name: str, version: int, **fields: Any) -> Any:
        assert label not in self.answers
        answer = self.answers[label] = self.caller.call(name, version, **fields)
        return answer

    def tasks(self, active: Tasks, standby: Tasks | None = None) -> dict[str, Any]:
        def rows(tasks: Tasks) -> list[Any]:
            return [self.request.TaskIds(subtopology_id=name, partitions=each) for name, each in tasks.items()]

        return {"active_tasks": rows(active), "standby_tasks": rows(standby or {}), "warmup_tasks": []}

    def of(self, answer: Any) -> dict[str, Any]:
        """The tasks of an answer, as those that a member says it has."""
        return self.tasks(
            {row.subtopology_id: list(row.partitions) for row in answer.active_tasks},
            {row.subtopology_id: list(row.partitions) for row in answer.standby_tasks},
        )

    def topic(self, name: str, **fields: Any) -> Any:
        return self.request.TopicInfo(name=name, **fields)

    def topology(self, group: str, source: str = "t1", epoch: int = 0) -> Any:
        """Words of `source` by a repartition topic into a table."""
        setting = self.request.KeyValue(key="cleanup.policy", value="compact")
        return self.request.Topology(
            epoch=epoch,
            subtopologies=[
                self.request.Subtopology(
                    subtopology_id="0", source_topics=[source], repartition_sink_topics=[f"{group}-r-repartition"]
                ),
                self.request.Subtopology(
                    subtopology_id="1",
                    repartition_source_topics=[self.topic(f"{group}-r-repartition")],
                    state_changelog_topics=[self.topic(f"{group}-c-changelog", topic_configs=[setting])],
                ),
            ],
        )

    def beat(self, label: str, member: str, epoch: int, **fields: Any) -> Any:
        values = {"group_id": "g", "member_id": member, "member_epoch": epoch, "endpoint_information_epoch": 0}
        return self.ask(label, "StreamsGroupHeartbeat", 0, **(values | fields))

    def join(self, label: str, member: str, **fields: Any) -> Any:
        values = {
            "rebalance_timeout_ms": 60_000,
            "topology": self.topology(fields.get("group_id", "g")),
            "process_id": member.upper(),
        }
        return self.beat(label, member, 0, **(values | self.tasks({}) | fields))

    def describe(self, label: str, *groups: str) -> None:
        self.ask(label, "StreamsGroupDescribe", 0, group_ids=list(groups or ("g",)))

    def run(self) -> dict[str, Any]:
        self._refused()
        self._topologies()
        self._two_members()
        self._offsets()
        self._seen()
        self._ends()
        self._other_kinds()
        self._stays()
        return self.answers

    def plain(self) -> dict[str, Any]:
        """The answers as JSON has them, in an order that does not matter."""

        def ordered(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: ordered(each) for key, each in value.items()}
            if isinstance(value, list):
                return sorted((ordered(each) for each in value), key=partial(json.dumps, sort_keys=True))
            if isinstance(value, str) and value.startswith(MISSING):
                # Kafka names them in the order of Java's hash table.
                return MISSING + ", ".join(sorted(value.removeprefix(MISSING).split(", ")))
            return value

        return {label: ordered(plain(answer)) for label, answer in self.answers.items()}

    def _refused(self) -> None:
        self.join("join without group", "a", group_id="")
        self.join("join without id", "")
        self.beat("beat unknown group", "a", 3)
        self.beat("leave unknown group", "a", -1)
        self.join("join without timeout", "a", rebalance_timeout_ms=-1)
        self.join("join that has tasks", "a", **self.tasks({"0": [0]}))
        self.join("join with tasks null", "a", active_tasks=None)
        self.join("join without topology", "a", topology=None)
        self.join("join with instance", "a", instance_id="i")
        self.join("join empty rack", "a", rack_id="")
        self.join("join with offsets", "a", task_offsets=[])
        self.join("join with end offsets", "a", task_end_offsets=[])
        self.beat(
            "beat with warm-up",
            "a",
            3,
            **(self.tasks({}) | {"warmup_tasks": [self.request.TaskIds(subtopology_id="0", partitions=[0])]}),
        )
        self.beat("bad epoch", "a", -3)
        self.beat("static leave", "a", -2)
        self.beat("beat with topology", "a", 3, topology=self.topology("g"))
        self.beat("beat with some tasks", "a", 3, active_tasks=[])
        self.describe("describe refused", "g", "")

    def _invalid(self, label: str, **fields: Any) -> None:
        subtopology = self.request.Subtopology(**({"subtopology_id": "0", "source_topics": ["t1"]} | fields))
        topology = self.request.Topology(epoch=0, subtopologies=[subtopology])
        self.join(label, "a", group_id="x", topology=topology)

    def _topologies(self) -> None:
        self._invalid("internal source", source_topics=["__consumer_offsets"])
        self._invalid("illegal source", source_topics=["no/topic"])
        self._invalid("regex source", source_topic_regex=["t.*"])
        self._invalid("changelog with partitions", state_changelog_topics=[self.topic("c", partitions=2)])
        self._invalid("no source", source_topics=[])
        self._invalid("repartition without sink", repartition_source_topics=[self.topic("r")])
        self._invalid(
            "loop", repartition_source_topics=[self.topic("r")], source_topics=[], repartition_sink_topics=["r"]
        )
        group = self.request.CopartitionGroup(source_topics=[0, 1])
        self._invalid("not copartitioned", source_topics=["t1", "t2"], copartition_groups=[group])
        self.beat("x: leaves", "a", -1, group_id="x")
        self.ask("x: deleted", "DeleteGroups", 2, groups_names=["x"])
        group = self.request.CopartitionGroup(source_topics=[0], repartition_source_topics=[0])
        fixed = {"repartition_source_topics": [self.topic("r", partitions=2)], "repartition_sink_topics": ["r"]}
        self._invalid("repartition against source", copartition_groups=[group], **fixed)
        self.describe("describe not ready", "x")
        self.beat("x: leaves again", "a", -1, group_id="x")
        self.ask("x: deleted again", "DeleteGroups", 2, groups_names=["x"])
        epoch = self.join("source is missing", "a", group_id="x", topology=self.topology("x", "nope")).member_epoch
        self.beat("source is still missing", "a", epoch, group_id="x")
        self.describe("describe without source", "x")
        self.beat("x: leaves once more", "a", -1, group_id="x")

    def _two_members(self) -> None:
        a = self.join("a joins", "a").member_epoch
        self.pause()
        told = self.beat("a finds its topics", "a", a)
        a, all_tasks = told.member_epoch, self.of(told)
        self.beat("a again", "a", a)
        self.beat("a says what it has", "a", a, **all_tasks)
        self.beat("a has too much", "a", a, **self.tasks({"0": [3]}))
        self.beat("a has another's", "a", a, **self.tasks({"2": [0]}))
        self.describe("describe one")
        self.join("b joins with another topology", "b", topology=self.topology("g", "t2"))
        self.join("b joins with another epoch", "b", topology=self.topology("g", epoch=1))
        endpoint = self.request.Endpoint(host="b.example", port=7_000)
        tag = self.request.KeyValue(key="zone", value="z")
        b = self.join("b joins", "b", user_endpoint=endpoint, client_tags=[tag], rack_id="r").member_epoch
        self.describe("describe assigning")
        self.beat("b waits", "b", b)
        told = self.beat("a is asked to revoke", "a", a)
        self.describe("describe revoking")
        self.beat("a still has all", "a", a, **all_tasks)
        self.kept = self.of(told)
        told = self.beat("a has revoked", "a", a, **self.kept)
        self.epoch = told.member_epoch
        told = self.beat("b gains", "b", b)
        self.beat("b confirms", "b", told.member_epoch, endpoint_information_epoch=told.endpoint_information_epoch)
        told = self.beat("a gets its standbys", "a", self.epoch)
        self.beat("a hears of endpoints", "a", self.epoch, endpoint_information_epoch=-1)
        self.beat("a one epoch behind", "a", self.epoch - 1, **self.kept)
        self.beat("a one epoch behind without tasks", "a", self.epoch - 1)
        self.beat("a ahead", "a", self.epoch + 1)
        self.beat("stranger", "z", self.epoch)
        self.describe("describe both", "g", "nope")

    def commit(self, label: str, version: int, epoch: int, member: str, partition: int, topic: str = "t1") -> None:
        request = message("OffsetCommitRequest")
        row = request.OffsetCommitRequestTopic(
            name=topic,
            topic_id=self.ids[topic],
            partitions=[request.OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)],
        )
        self.ask(
            label,
            "OffsetCommit",
            version,
            group_id="g",
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[row],
        )

    def fetch(self, label: str, member: str | None, epoch: int) -> None:
        request = message("OffsetFetchRequest")
        topic = request.OffsetFetchRequestTopics(name="t1", partition_indexes=[0, 1, 2])
        group = request.OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch, topics=[topic])
        self.ask(label, "OffsetFetch", 9, groups=[group])

    def _offsets(self) -> None:
        mine = {index for row in self.kept["active_tasks"] if row.subtopology_id == "0" for index in row.partitions}
        own, others = min(mine), min({0, 1, 2} - mine)
        self.commit("commit", 9, self.epoch, "a", own)
        self.commit("commit of another's", 9, self.epoch, "a", others)
        self.commit("commit late", 9, self.epoch - 1, "a", own)
        self.commit("commit late of another's", 9, self.epoch - 1, "a", others)
        self.commit("commit late of another topic", 9, self.epoch - 1, "a", 0, "t2")
        self.commit("commit too late", 9, 0, "a", own)
        self.commit("commit ahead", 9, self.epoch + 1, "a", own)
        self.commit("commit of a stranger", 9, self.epoch, "z", own)
        self.commit("commit of nobody", 9, -1, "", own)
        self.commit("commit v8", 8, self.epoch, "a", own)
        self.fetch("fetch", "a", self.epoch)
        self.fetch("fetch late", "a", self.epoch - 1)
        self.fetch("fetch of a stranger", "z", self.epoch)
        self.fetch("fetch of nobody", None, -1)
        request = message("OffsetDeleteRequest")
        partition = request.OffsetDeleteRequestPartition(partition_index=own)
        topics = [request.OffsetDeleteRequestTopic(name=name, partitions=[partition]) for name in ("t1", "t2")]
        self.ask("delete offsets", "OffsetDelete", 0, group_id="g", topics=topics)

    def _seen(self) -> None:
        self.ask("describe as classic", "DescribeGroups", 6, groups=["g"])
        self.ask("describe as consumer", "ConsumerGroupDescribe", 1, group_ids=["g"])
        self.ask("list", "ListGroups", 5)
        self.ask("list streams", "ListGroups", 5, types_filter=["streams"])
        self.ask("list consumer", "ListGroups", 5, types_filter=["consumer"])
        self.ask("list stable", "ListGroups", 5, states_filter=["stable"])
        self.ask("list empty", "ListGroups", 4, states_filter=["Empty"])
        self.ask("delete with members", "DeleteGroups", 2, groups_names=["g"])
        self.ask("classic heartbeat", "Heartbeat", 4, group_id="g", member_id="a", generation_id=self.epoch)
        self.ask("classic sync", "SyncGroup", 4, group_id="g", member_id="a", generation_id=self.epoch)
        member = message("LeaveGroupRequest").MemberIdentity
        self.ask("classic leave", "LeaveGroup", 5, group_id="g", members=[member(member_id="a")])
        protocol = message("JoinGroupRequest").JoinGroupRequestProtocol(name="x", metadata=b"")
        other = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocols": [protocol]}
        self.ask("classic join", "JoinGroup", 9, group_id="g", protocol_type="consumer", **other)
        values = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t1"], "topic_partitions": []}
        self.ask("consumer join", "ConsumerGroupHeartbeat", 1, group_id="g", member_id="q", member_epoch=0, **values)

    def _ends(self) -> None:
        self.beat("a asks for the end", "a", self.epoch, shutdown_application=True)
        b = self.join("b joins again", "b").member_epoch
        self.beat("b hears of the end", "b", b)
        self.beat("b leaves", "b", -1)
        self.beat("b leaves again", "b", -1)
        self.beat("a gets all", "a", self.epoch, **self.kept)
        self.beat("a leaves", "a", -1)
        self.describe("describe empty")
        self.commit("commit to an empty group", 9, -1, "", 0)
        self.join("c joins with another topology", "c", topology=self.topology("g", "t2"))
        c = self.join("c joins", "c").member_epoch
        self.beat("c does not hear of the end", "c", c)
        self.beat("c leaves", "c", -1, shutdown_application=True)
        self.ask("delete", "DeleteGroups", 2, groups_names=["g"])
        self.describe("describe deleted")

    def _classic(self, label: str, group: str, member: str = "") -> Any:
        protocol = message("JoinGroupRequest").JoinGroupRequestProtocol(name="range", metadata=subscription("t1"))
        return self.ask(
            label,
            "JoinGroup",
            9,
            group_id=group,
            member_id=member,
            protocol_type="consumer",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocols=[protocol],
        )

    def _other_kinds(self) -> None:
        member = self._classic("classic asks for an id", "m").member_id
        self._classic("classic joins", "m", member)
        self.join("join of a classic group", "a", group_id="m")
        identity = message("LeaveGroupRequest").MemberIdentity
        self.ask("classic member leaves", "LeaveGroup", 5, group_id="m", members=[identity(member_id=member)])
        self.join("join of an empty classic group", "a", group_id="m")
        self.pause()
        self.describe("describe converted", "m")
        self.beat("m: leaves", "a", -1, group_id="m")
        self._classic("classic asks for an id of a streams group", "m")
        self.describe("describe converted back", "m")
        self.ask("list at the end", "ListGroups", 5)

    def _stays(self) -> None:
        """A group that is half way through a rebalance when the broker stops."""
        a = self.join("k: a joins", "a", group_id="k", rack_id="r1").member_epoch
        self.pause()
        told = self.beat("k: a finds its topics", "a", a, group_id="k")
        tag = self.request.KeyValue(key="zone", value="z")
        endpoint = self.request.Endpoint(host="b.example", port=7_000)
        self.join("k: b joins", "b", group_id="k", client_tags=[tag], user_endpoint=endpoint)
        self.beat("k: a revokes", "a", told.member_epoch, group_id="k")
        self.describe("k: describe", "k")
