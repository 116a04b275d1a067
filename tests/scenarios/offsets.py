"""Committed offsets: written, read back, refused, deleted."""

from __future__ import annotations

from typing import Any

from tests.scenarios.members import Member, join_alone
from tests.scenarios.session import Session, scenario
from tests.scenarios.topics import BOGUS_ID

COMMIT, FETCH, DELETE = "OffsetCommit", "OffsetFetch", "OffsetDelete"


def row(partition: int = 0, offset: int = 5, note: str | None = "note", **values: Any) -> dict[str, Any]:
    """One partition to commit."""
    return {"partition_index": partition, "committed_offset": offset, "committed_metadata": note, **values}


def commit(s: Session, step: str, group: str, *topics: dict[str, Any], version: int = 7, **values: Any) -> Any:
    """Commit for a group without members, unless said otherwise, and record the answer."""
    who = {"generation_id_or_member_epoch": -1, "member_id": "", **values}
    return s.ask(step, COMMIT, version, group_id=group, topics=list(topics), **who)


def read(s: Session, step: str, group: str, *topics: dict[str, Any], version: int = 7) -> Any:
    """Fetch one group's offsets and record the answer."""
    if version < 8:
        return s.ask(step, FETCH, version, group_id=group, topics=list(topics))
    return s.ask(step, FETCH, version, groups=[{"group_id": group, "topics": list(topics)}])


@scenario
def in_each_version(s: Session) -> None:
    topic_id = s.create("commit-versions", 2)
    s.coordinator("commit-versions")
    for version in range(2, 11):
        topic = {"topic_id": topic_id} if version >= 10 else {"name": "commit-versions"}
        commit(s, f"commit v{version}", "commit-versions", {**topic, "partitions": [row(0, version)]}, version=version)
    for version in range(1, 11):
        topic = {"topic_id": topic_id} if version >= 10 else {"name": "commit-versions"}
        asked = {**topic, "partition_indexes": [0, 1]}
        read(s, f"fetch v{version}", "commit-versions", asked, version=version)


@scenario
def read_all(s: Session) -> None:
    """Null means all topics that the group has committed; empty means none."""
    s.create("read-all-a", 2)
    s.create("read-all-b")
    s.coordinator("read-all")
    both = [{"name": "read-all-a", "partitions": [row(0, 1), row(1, 2)]}, {"name": "read-all-b", "partitions": [row()]}]
    commit(s, "commit", "read-all", *both)
    for version in (2, 5, 7):
        s.ask(f"all v{version}", FETCH, version, group_id="read-all", topics=None)
        s.ask(f"none v{version}", FETCH, version, group_id="read-all", topics=[])
    for version in (8, 9, 10):
        s.ask(f"all v{version}", FETCH, version, groups=[{"group_id": "read-all", "topics": None}])
        s.ask(f"none v{version}", FETCH, version, groups=[{"group_id": "read-all", "topics": []}])
    groups = [{"group_id": "read-all", "topics": None}, {"group_id": "read-all-never", "topics": None}]
    s.ask("two groups", FETCH, 8, groups=groups)
    s.ask("no groups", FETCH, 8, groups=[])
    s.ask("stable only", FETCH, 7, group_id="read-all", topics=None, require_stable=True)


@scenario
def of_what_is_not(s: Session) -> None:
    topic_id = s.create("commit-known")
    s.coordinator("commit-odd")
    asked = {"name": "commit-known", "partition_indexes": [0, 9, -1]}
    read(s, "unknown group", "commit-never", asked)
    read(s, "empty group", "", asked)
    read(s, "unknown topic", "commit-odd", {"name": "commit-nowhere", "partition_indexes": [0]})
    read(s, "unknown id", "commit-odd", {"topic_id": BOGUS_ID, "partition_indexes": [0]}, version=10)
    commit(s, "to an unknown topic", "commit-odd", {"name": "commit-nowhere", "partitions": [row()]})
    commit(s, "unknown partition", "commit-odd", {"name": "commit-known", "partitions": [row(9), row(-1), row(0)]})
    commit(s, "to an unknown id", "commit-odd", {"topic_id": BOGUS_ID, "partitions": [row()]}, version=10)
    by_id = {"topic_id": topic_id, "partitions": [row(9), row(0)]}
    commit(s, "unknown partition by id", "commit-odd", by_id, version=10)
    commit(s, "to an empty group", "", {"name": "commit-known", "partitions": [row()]})
    commit(s, "invalid topic", "commit-odd", {"name": "not a name", "partitions": [row()]})
    commit(s, "nothing", "commit-odd")
    known = {"name": "commit-known"}
    commit(s, "a negative offset", "commit-odd", {**known, "partitions": [row(0, -1)]})
    commit(s, "no note", "commit-odd", {**known, "partitions": [row(0, 7, None)]})
    commit(s, "a note as long as may be", "commit-odd", {**known, "partitions": [row(0, 8, "x" * 4096)]})
    commit(s, "a note too long", "commit-odd", {**known, "partitions": [row(0, 9, "x" * 4097)]})
    commit(s, "a leader epoch", "commit-odd", {**known, "partitions": [row(0, 10, "", committed_leader_epoch=3)]})
    read(s, "then", "commit-odd", {"name": "commit-known", "partition_indexes": [0]})


@scenario
def by_whom(s: Session) -> None:
    """A group with members takes commits from them alone."""
    s.create("commit-whom")
    s.coordinator("commit-whom")
    topic = {"name": "commit-whom", "partitions": [row()]}
    commit(s, "a member of no group", "commit-whom", topic, member_id="never-given", generation_id_or_member_epoch=1)
    commit(s, "a generation of no group", "commit-whom", topic, generation_id_or_member_epoch=1)
    member = join_alone(s, "commit-whom")

    def mine(step: str, **values: Any) -> None:
        who = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation, **values}
        commit(s, step, "commit-whom", topic, **who)

    mine("the member")
    mine("nobody", member_id="", generation_id_or_member_epoch=-1)
    mine("an unknown member", member_id="never-given")
    mine("a generation past", generation_id_or_member_epoch=0)
    mine("a generation to come", generation_id_or_member_epoch=7)
    mine("no generation", generation_id_or_member_epoch=-1)
    mine("an unknown instance", group_instance_id="fixed")
    member.join()
    mine("joined, not synced")
    member.sync()
    member.leave()
    mine("after leaving")
    commit(s, "nobody, when all have left", "commit-whom", topic)


@scenario
def delete(s: Session) -> None:
    s.create("delete-offsets", 2)
    s.coordinator("delete-offsets")
    group = "delete-offsets"

    def remove(step: str, *partitions: int, name: str = "delete-offsets", group: str = group) -> None:
        rows = [{"partition_index": partition} for partition in partitions]
        s.ask(step, DELETE, 0, group_id=group, topics=[{"name": name, "partitions": rows}])

    remove("unknown group", 0, group="delete-offsets-never")
    remove("empty group", 0, group="")
    commit(s, "commit", group, {"name": "delete-offsets", "partitions": [row(0), row(1)]})
    remove("one", 0)
    remove("what is not there", 0)
    remove("unknown partition", 9)
    remove("unknown topic", 0, name="delete-offsets-nowhere")
    read(s, "what is left", group, {"name": "delete-offsets", "partition_indexes": [0, 1]})
    member = Member(s, group)
    subscription = b"\0\1" + b"\0\0\0\1" + b"\0\x0edelete-offsets" + b"\0\0\0\0" + b"\0\0\0\0"
    member.join(protocols=[{"name": "range", "metadata": subscription}])
    member.sync()
    remove("while subscribed", 1)
    remove("while subscribed to another", 0, name="delete-offsets-nowhere")
    member.leave()
    remove("after leaving", 1)


@scenario
def delete_of_members_that_claim_a_version(s: Session) -> None:
    """Subscriptions without the fields that their version adds, and with a version that does not exist."""
    s.create("claims-read")
    s.create("claims-dropped")
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("claims-read", "claims-dropped")]
    for version in (0, 1, 3, 99, -1):
        group = f"claims-{version}"
        s.coordinator(group)
        commit(
            s,
            f"version {version}, committed",
            group,
            *({"name": topic["name"], "partitions": [row(0)]} for topic in topics),
        )
        member = Member(s, group)
        subscription = version.to_bytes(2, "big", signed=True) + b"\0\0\0\1" + b"\0\x0bclaims-read" + b"\xff" * 4
        member.join(protocols=[{"name": "range", "metadata": subscription}])
        member.sync()
        s.ask(f"version {version}", DELETE, 0, group_id=group, topics=topics)
        member.leave()


@scenario
def go_with_their_topic(s: Session) -> None:
    """Offsets of a deleted topic are gone, and a topic made anew does not inherit them."""
    s.create("goes")
    s.coordinator("goes")
    commit(s, "commit", "goes", {"name": "goes", "partitions": [row()]})
    s.quietly("DeleteTopics", 6, topics=[{"name": "goes"}], timeout_ms=30_000)
    s.until_gone("goes")
    s.create("goes")
    from tests.compat.waiting import wait_for

    def gone() -> bool:
        found = s.quietly(FETCH, 7, group_id="goes", topics=[{"name": "goes", "partition_indexes": [0]}])
        return bool(found.topics[0].partitions[0].committed_offset == -1)

    wait_for(gone, "the offsets of the old topic to be gone")
    s.ask("all", FETCH, 7, group_id="goes", topics=None)
