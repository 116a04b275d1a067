"""The classic group protocol: every request in every state it is refused in, and the rounds that work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.compat.waiting import wait_for
from tests.scenarios.session import Session, scenario

JOIN, SYNC, BEAT, LEAVE = "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"
RANGE = ({"name": "range", "metadata": b"r"},)
OTHER = ({"name": "other", "metadata": b""},)


class Member:
    """One client's view of its group."""

    rebalance_timeout_ms = 5_000

    def __init__(self, s: Session, group: str, instance: str | None = None) -> None:
        self.s = s
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.leads = False

    def values(self, protocols: Sequence[dict[str, Any]] = RANGE, **values: Any) -> dict[str, Any]:
        """The fields of a JoinGroup."""
        return {
            "group_id": self.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": list(protocols),
            **values,
        }

    def ask_for_id(self, **values: Any) -> None:
        """Be told a member id, as a client that joins for the first time is."""
        if not self.member_id and self.instance is None:
            answer = self.s.quietly(JOIN, 5, **self.values(**values))
            assert answer.error_code == 79, answer
            self.member_id = answer.member_id
            self.s.normal.text("member_id", self.member_id)

    def send_join(self, **values: Any) -> None:
        """Ask to join without waiting for the answer."""
        self.s.wire.send(JOIN, 5, self.values(**values))

    def collect_join(self, step: str = "") -> Any:
        """Take the answer to `send_join`, recorded under `step` if one is named."""
        answer = self.s.collect(step, JOIN, 5) if step else self.s.wire.answer(JOIN, 5)
        if answer.error_code == 0:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leads = answer.leader == answer.member_id
        return answer

    def join(self, step: str = "", **values: Any) -> Any:
        """Join and take the answer."""
        self.ask_for_id(**values)
        self.send_join(**values)
        return self.collect_join(step)

    def sync_values(self, *others: Member, **values: Any) -> dict[str, Any]:
        """The fields of a SyncGroup; the leader hands out one byte to each member."""
        members = [self, *others] if self.leads else []
        assignments = [
            {"member_id": member.member_id, "assignment": bytes([number])} for number, member in enumerate(members)
        ]
        return {**self.place(), "assignments": assignments, **values}

    def sync(self, step: str = "", *others: Member, **values: Any) -> Any:
        """Sync and take the answer."""
        asked = self.sync_values(*others, **values)
        return self.s.ask(step, SYNC, 3, **asked) if step else self.s.quietly(SYNC, 3, **asked)

    def place(self, **values: Any) -> dict[str, Any]:
        """Who and when this member is."""
        mine = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return {**mine, "group_instance_id": self.instance, **values}

    def beat(self, step: str, version: int = 3, **values: Any) -> Any:
        """Send a heartbeat and record the answer."""
        return self.s.ask(step, BEAT, version, **self.place(**values))

    def until_rebalance(self) -> None:
        """Send heartbeats until the coordinator asks to join anew."""
        wait_for(lambda: self.s.quietly(BEAT, 3, **self.place()).error_code == 27, "a rebalance")

    def leave(self, step: str = "", **values: Any) -> Any:
        """Leave the group."""
        asked = {"group_id": self.group, "members": [{"member_id": self.member_id, "group_instance_id": self.instance}]}
        asked.update(values)
        return self.s.ask(step, LEAVE, 4, **asked) if step else self.s.quietly(LEAVE, 4, **asked)


def join_alone(s: Session, group: str, instance: str | None = None) -> Member:
    """A group of one, joined and synced."""
    member = Member(s, group, instance)
    assert member.join().error_code == 0
    assert member.sync().error_code == 0
    return member


@scenario
def a_whole_life_in_each_version(s: Session) -> None:
    for version in range(10):
        group = f"life-v{version}"
        s.coordinator(group)
        member = Member(s, group)
        values = member.values()
        if version < 5:
            values.pop("group_instance_id")
        first = s.ask(f"v{version} join", JOIN, version, **values)
        if first.error_code == 79:
            first = s.ask(f"v{version} join with id", JOIN, version, **{**values, "member_id": first.member_id})
        member.member_id, member.generation, member.leads = first.member_id, first.generation_id, True
        step = min(version, 5)
        sync = member.sync_values()
        if step < 3:
            sync.pop("group_instance_id")
        if step == 5:
            sync |= {"protocol_type": "consumer", "protocol_name": "range"}
        s.ask(f"v{version} sync v{step}", SYNC, step, **sync)
        beat = member.place()
        if min(version, 4) < 3:
            beat.pop("group_instance_id")
        s.ask(f"v{version} beat v{min(version, 4)}", BEAT, min(version, 4), **beat)
        if step < 3:
            s.ask(f"v{version} leave v{step}", LEAVE, step, group_id=group, member_id=member.member_id)
        else:
            members = [{"member_id": member.member_id, "group_instance_id": None}]
            s.ask(f"v{version} leave v{step}", LEAVE, step, group_id=group, members=members)


@scenario
def join_refused(s: Session) -> None:
    s.coordinator("join-refused")
    member = Member(s, "join-refused")
    # The members with odd instance ids stay and never answer; the group waits this long for them, and puts out those
    # that have not synced by then: longer than a busy machine leaves this process waiting between two requests.
    member.rebalance_timeout_ms = 4_000

    def ask(step: str, version: int = 5, **values: Any) -> Any:
        return s.ask(step, JOIN, version, **member.values(**values))

    ask("without a member id")
    ask("empty group", group_id="")
    ask("session too short", session_timeout_ms=1)
    ask("session too long", session_timeout_ms=100_000_000)
    ask("a member id never given", member_id="never-given")
    ask("no protocols", protocols=[])
    ask("no protocol type", protocol_type="")
    ask("an instance id that is empty", group_instance_id="")
    ask("an instance id that is not a name", group_instance_id="no name")
    ask("an instance id and an unknown member id", group_instance_id="fixed", member_id="never-given")
    alone = member
    alone.join()
    alone.sync()
    ask("another protocol type", protocol_type="connect", member_id="")
    ask("another protocol type, v3", 3, protocol_type="connect", member_id="", group_instance_id=None)
    ask("no protocol in common, v3", 3, protocols=OTHER, member_id="", group_instance_id=None)
    ask("no protocols at all, v3", 3, protocols=[], member_id="", group_instance_id=None)
    alone.leave()


@scenario
def sync_refused(s: Session) -> None:
    s.coordinator("sync-refused")
    s.ask("unknown group", SYNC, 3, group_id="sync-never", generation_id=1, member_id="x", assignments=[])
    s.ask("empty group", SYNC, 3, group_id="", generation_id=1, member_id="x", assignments=[])
    member = join_alone(s, "sync-refused")
    member.sync("again, while stable")
    member.sync("unknown member", member_id="never-given")
    member.sync("a generation past", generation_id=0)
    member.sync("a generation to come", generation_id=5)
    member.sync("an unknown instance", group_instance_id="fixed")
    for step, values in (
        ("another protocol type", {"protocol_type": "connect", "protocol_name": "range"}),
        ("another protocol", {"protocol_type": "consumer", "protocol_name": "other"}),
        ("the right ones", {"protocol_type": "consumer", "protocol_name": "range"}),
        ("none named", {"protocol_type": None, "protocol_name": None}),
    ):
        s.ask(step, SYNC, 5, **member.sync_values(**values))
    member.leave()
    member.sync("after leaving")


@scenario
def heartbeat_refused(s: Session) -> None:
    s.coordinator("beat-refused")
    member = Member(s, "beat-refused")
    member.beat("unknown group")
    member.beat("empty group", group_id="")
    member.join()
    member.beat("joined, not synced")
    member.sync()
    member.beat("stable")
    member.beat("unknown member", member_id="never-given")
    member.beat("no member", member_id="")
    member.beat("a generation past", generation_id=0)
    member.beat("a generation to come", generation_id=9)
    member.beat("an unknown instance", group_instance_id="fixed")
    member.leave()
    member.beat("after leaving")


@scenario
def leave_refused(s: Session) -> None:
    s.coordinator("leave-refused")
    member = join_alone(s, "leave-refused")
    s.ask("unknown group, v1", LEAVE, 1, group_id="leave-never", member_id="x")
    s.ask("unknown member, v1", LEAVE, 1, group_id="leave-refused", member_id="x")
    member.leave("unknown group", group_id="leave-never")
    member.leave("empty group", group_id="")
    member.leave("unknown member", members=[{"member_id": "never-given"}])
    member.leave("unknown instance", members=[{"member_id": "", "group_instance_id": "fixed"}])
    member.leave("nobody", members=[])
    row = {"member_id": member.member_id, "group_instance_id": None}
    member.leave("one known, one not", members=[row, {"member_id": "never-given"}])
    member.leave("again")


@scenario
def two_members(s: Session) -> None:
    """A second member joins, both sync, one leaves: what each is told at each step."""
    s.create("two-topic")
    s.coordinator("two")
    first = Member(s, "two")
    first.join("first joins")
    first.sync("first syncs")
    with s.second() as other:
        second = Member(other, "two")
        second.ask_for_id()
        second.send_join()
        first.until_rebalance()
        first.sync("syncing meanwhile")
        first.beat("a beat meanwhile")
        s.ask("a commit meanwhile", "OffsetCommit", 7, **commit_values(first, "two-topic"))
        answer = first.join("first joins anew")
        second.collect_join("second has joined")
        assert answer.generation_id == second.generation
        leader, follower = (first, second) if first.leads else (second, first)
        follower.beat("the follower beats before the leader's sync")
        follower.s.wire.send(SYNC, 3, follower.sync_values())
        leader.s.wire.send(SYNC, 3, leader.sync_values(follower))
        leader.s.collect("the leader is synced", SYNC, 3)
        follower.s.collect("the follower is synced", SYNC, 3)
        first.beat("both stable")
        second.leave("second leaves")
        first.until_rebalance()
    first.join("first alone again")
    first.sync("and synced")
    first.leave("and gone")


@scenario
def protocol_that_all_know(s: Session) -> None:
    """The group takes the protocol that most members put first among those that all know."""
    s.coordinator("choice")
    first = Member(s, "choice")
    names = [{"name": name, "metadata": name.encode()} for name in ("a", "b", "c")]
    first.join("a, b or c", protocols=names)
    first.sync()
    with s.second() as other:
        second = Member(other, "choice")
        second.ask_for_id(protocols=names[1:])
        second.send_join(protocols=names[1:])
        first.until_rebalance()
        first.join("now b or c", protocols=names)
        second.collect_join("b or c")
        second.leave()
    first.leave()


@scenario
def leader_joins_again(s: Session) -> None:
    """A leader that joins again starts a rebalance; a follower with nothing new is told where things stand."""
    s.coordinator("rejoin")
    first = Member(s, "rejoin")
    first.join()
    first.sync()
    with s.second() as other:
        second = Member(other, "rejoin")
        second.ask_for_id()
        second.send_join()
        first.until_rebalance()
        first.join()
        second.collect_join()
        leader, follower = (first, second) if first.leads else (second, first)
        follower.s.wire.send(SYNC, 3, follower.sync_values())
        leader.sync("", follower)
        follower.s.wire.answer(SYNC, 3)
        follower.join("the follower, unchanged")
        leader.send_join()
        follower.until_rebalance()
        follower.join("the follower after the leader")
        leader.collect_join("the leader")
        second.leave()
    first.leave()


@scenario
def a_member_that_dies(s: Session) -> None:
    """A member that stays silent beyond its session is put out, and the others rebalance."""
    s.coordinator("dies")
    first = join_alone(s, "dies")
    with s.second() as other:
        second = Member(other, "dies")
        second.ask_for_id()
        # Longer than a busy machine leaves this process waiting between two requests.
        second.send_join(session_timeout_ms=3_000)
        first.until_rebalance()
        first.join()
        second.collect_join()
        leader, follower = (first, second) if first.leads else (second, first)
        follower.s.wire.send(SYNC, 3, follower.sync_values())
        leader.sync("", follower)
        follower.s.wire.answer(SYNC, 3)
        first.until_rebalance()
        first.join("the survivor")
        first.sync()
        second.beat("the dead one's beat")
    first.leave()


@scenario
def static_members(s: Session) -> None:
    """A member with an instance id comes back without a rebalance, and puts out whoever holds its id."""
    s.create("static-topic")
    s.coordinator("static")
    first = Member(s, "static", "one")
    first.join("first joins")
    first.sync("first syncs")
    again = Member(s, "static", "one")
    again.join("comes back under the same instance id")
    again.beat("beats at once")
    first.beat("the old member id")
    first.sync("the old member id syncs")
    first.join("the old member id joins")
    s.ask("the old member id commits", "OffsetCommit", 7, **commit_values(first, "static-topic"))
    again.sync("syncs, if it must")
    s.ask("described", "DescribeGroups", 5, groups=["static"])
    again.leave("leaves by instance id", members=[{"member_id": "", "group_instance_id": "one"}])
    again.beat("after leaving")


@scenario
def static_member_leaves_with_wrong_id(s: Session) -> None:
    s.coordinator("static-leave")
    member = join_alone(s, "static-leave", "fixed")
    wrong = [{"member_id": "never-given", "group_instance_id": "fixed"}]
    member.leave("the wrong member id", members=wrong)
    member.beat("still there")
    member.leave("the right one")


def commit_values(member: Member, topic: str) -> dict[str, Any]:
    """The fields of an OffsetCommit by a member."""
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    return {
        "group_id": member.group,
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
        "group_instance_id": member.instance,
        "topics": [{"name": topic, "partitions": [row]}],
    }
