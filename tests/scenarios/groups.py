"""Groups as seen from outside: where their coordinator is, and what is said of them."""

from __future__ import annotations

from typing import Any

from tests.scenarios.members import Member, join_alone
from tests.scenarios.session import Session, scenario


@scenario
def find_coordinator_in_each_version(s: Session) -> None:
    s.coordinator("found")
    for version in range(7):
        if version < 4:
            s.ask(f"v{version}", "FindCoordinator", version, key="found")
        else:
            s.ask(f"v{version}", "FindCoordinator", version, coordinator_keys=["found"], key_type=0)


@scenario
def find_coordinators_of_odd_things(s: Session) -> None:
    s.coordinator("found-odd")
    s.ask("three at once", "FindCoordinator", 4, coordinator_keys=["found-odd", "b", "c"], key_type=0)
    s.ask("none", "FindCoordinator", 4, coordinator_keys=[], key_type=0)
    s.ask("empty name", "FindCoordinator", 4, coordinator_keys=[""], key_type=0)
    s.ask("empty name, v2", "FindCoordinator", 2, key="")
    s.ask("a kind that is not", "FindCoordinator", 4, coordinator_keys=["x"], key_type=9)
    s.ask("a kind that is not, v2", "FindCoordinator", 2, key="x", key_type=9)


@scenario
def describe_in_each_version(s: Session) -> None:
    s.coordinator("described")
    member = join_alone(s, "described")
    for version in range(7):
        s.ask(f"v{version}", "DescribeGroups", version, groups=["described"])
    s.ask("operations", "DescribeGroups", 5, groups=["described"], include_authorized_operations=True)
    member.leave()


@scenario
def describe_in_each_state(s: Session) -> None:
    s.coordinator("states")

    def look(step: str) -> None:
        s.ask(step, "DescribeGroups", 5, groups=["states"])

    look("never seen")
    member = Member(s, "states")
    member.join()
    look("joined, not synced")
    member.sync()
    look("stable")
    with s.second() as other:
        second = Member(other, "states")
        second.ask_for_id()
        second.send_join()
        member.until_rebalance()
        look("a second wants in")
        member.join()
        second.collect_join()
        look("both joined")
        second.leave()
    member.leave()
    look("empty")
    s.quietly("DeleteGroups", 1, groups_names=["states"])
    look("deleted")
    s.ask("several", "DescribeGroups", 5, groups=["states", "states-never", ""])
    s.ask("none", "DescribeGroups", 5, groups=[])


@scenario
def list_groups(s: Session) -> None:
    """Other scenarios leave groups behind, so only this one's are looked at."""
    s.coordinator("listed")
    member = join_alone(s, "listed")
    s.quietly("OffsetCommit", 5, **plain_commit(s, "listed-empty", "listed-topic"))

    def look(step: str, version: int, **values: Any) -> None:
        answer = s.quietly("ListGroups", version, **values)
        rows = [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.group_state,
                "group_type": group.group_type,
            }
            for group in answer.groups
            if group.group_id.startswith("listed")
        ]
        rows.sort(key=lambda row: str(row["group_id"]))
        s.record(step, {"error_code": answer.error_code, "groups": rows})

    for version in range(6):
        look(f"v{version}", version)
    for states in (["Stable"], ["stable"], ["Empty"], ["Stable", "Empty"], ["NoSuchState"], ["Dead"]):
        look(f"states {states}", 4, states_filter=states)
    for types in (["classic"], ["Classic"], ["consumer"], ["no such type"]):
        look(f"types {types}", 5, types_filter=types)
    look("states and types", 5, states_filter=["Empty"], types_filter=["classic"])
    member.leave()


@scenario
def delete_groups(s: Session) -> None:
    s.coordinator("doomed")
    member = join_alone(s, "doomed")
    s.ask("with a member", "DeleteGroups", 2, groups_names=["doomed"])
    member.leave()
    for version in range(3):
        name = f"doomed-v{version}"
        s.quietly("OffsetCommit", 5, **plain_commit(s, name, "doomed-topic"))
        s.ask(f"v{version}", "DeleteGroups", version, groups_names=[name])
    s.ask("again", "DeleteGroups", 2, groups_names=["doomed-v0"])
    s.ask("never seen", "DeleteGroups", 2, groups_names=["doomed-never"])
    s.ask("empty name", "DeleteGroups", 2, groups_names=[""])
    s.ask("one there, one not", "DeleteGroups", 2, groups_names=["doomed", "doomed-never"])
    s.ask("none", "DeleteGroups", 2, groups_names=[])


def plain_commit(s: Session, group: str, topic: str) -> dict[str, Any]:
    """The fields of an OffsetCommit by nobody's member; the topic is created when it is not there."""
    known = s.quietly("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False).topics[0]
    if known.error_code:
        s.create(topic)
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": [row]}],
    }
