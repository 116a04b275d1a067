"""What may differ from Apache Kafka's answers, each with its reason; nothing else may.

A difference is one line: the case, the place in the answer, and both values.  `docs/compatibility.md` has the reasons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ANY = "*"


@dataclass(frozen=True, slots=True)
class Allowed:
    """Lines of these APIs that match `pattern`."""

    apis: tuple[str, ...]
    pattern: str
    reason: str
    newest: int = 99

    def covers(self, api: str, version: int, line: str) -> bool:
        """Whether a line is this difference."""
        is_asked = version <= self.newest and (self.apis == (ANY,) or api in self.apis)
        return is_asked and re.search(self.pattern, line) is not None


NO_ANSWER = "Kafka leaves some requests without an answer, which kbroker answers with an error or with nothing to do"
COLLECTIONS = (
    "An item named twice, and a topic without partitions: Kafka's collections join or leave out some of these, and "
    "kbroker others"
)
DAMAGE = (
    "A request that is damaged so that it has invalid UTF-8, or counts beyond its end, closes its connection; Kafka's "
    "parser lets some of these pass"
)
DAMAGED = r"^(.*: )?(a byte is \w\w|cut \w+ \w+|longer): "
FIRST_HEARTBEAT = (
    "A share group's member has its partitions with the first heartbeat, and each change is assigned at once"
)
GROUPS = "A refused JoinGroup, and the first step of a new member, leave no empty group behind"
METADATA = "kbroker does not read what members say to each other; Kafka fails with the whole group where it cannot"

ALLOWED: tuple[Allowed, ...] = (
    Allowed((ANY,), r"\.(\w*error_message|message): ", "Texts are in kbroker's own words"),
    Allowed((ANY,), r"Kafka 'no answer'", NO_ANSWER),
    Allowed((ANY,), DAMAGED + r".*, kbroker 'connection closed'$", DAMAGE),
    Allowed((ANY,), DAMAGED + r".*( afterwards|member_id: )", DAMAGE),
    Allowed((ANY,), r"(=twice|=\[\]).*: \.", COLLECTIONS),
    Allowed(
        ("Produce",),
        r"error_code: Kafka (2|53), kbroker 29$",
        "A batch that no parser passes, or a transactional one without a transactional id, is refused in its own "
        "partition, behind the client's right to write there; Kafka refuses the whole request before",
    ),
    Allowed(
        ("Produce",),
        r"#(55|56)(, .*)?: \.",
        "An uncompressed batch whose records are not numbered 0, 1, 2, … is refused",
    ),
    Allowed(
        (ANY,),
        r"^(.*: )?two #\d: .*error_code: Kafka [^0]\d*, kbroker [^0]\d*$",
        "Of two faults in one request, each names one",
    ),
    Allowed(
        ("OffsetCommit", "OffsetFetch"),
        r"\.",
        "Offsets of version 0 lie with the others; Kafka had them in ZooKeeper, and without it refuses them",
        newest=0,
    ),
    Allowed(
        ("Produce",),
        r"#19(, .*)?: \.",
        "A control batch of a client is INVALID_RECORD, also where it says that it is of a transaction",
    ),
    Allowed(
        ("Fetch",),
        r"session_id=-?21474836\d\d(, .*)?: \.",
        "A fetch session of a number that Kafka's cache cannot look up does not exist; Kafka fails",
    ),
    Allowed(("JoinGroup",), r"group_state: Kafka '(Empty|Dead)', kbroker '(Empty|Dead)'", GROUPS),
    Allowed(("JoinGroup", "SyncGroup"), r"protocols/metadata=b'garbage'(, .*)?: \.", METADATA),
    Allowed(
        ("JoinGroup",),
        r"rebalance_timeout_ms=.* afterwards",
        "A rebalance that has a millisecond, or less, may be over before its state is asked for",
    ),
    Allowed(("ShareGroupHeartbeat",), r"(epoch|topic_partitions|assignment): Kafka ", FIRST_HEARTBEAT),
    Allowed(
        ("ShareFetch",),
        r"(topics/topic_id=|a byte is).*: \.answer\.(error_code: Kafka -1|responses|acquisition_lock)",
        "ShareFetch of a topic id that does not exist is refused for that topic; Kafka fails",
    ),
    Allowed(
        ("ShareFetch",),
        r"(\.(records|acquired_records): |responses: )Kafka \[\]",
        "A share-partition gives its records to the first fetch, and released ones at once; Kafka may give them later",
    ),
    Allowed(
        ("ShareFetch",),
        r"batch_size=(0|-\d+)(, .*)?: \..*acquired_records",
        "A batch size of nothing is one record; Kafka acquires a range without records first",
    ),
    Allowed(
        ("WriteShareGroupState",),
        r"(state_epoch|leader_epoch|start_offset)=.* afterwards",
        "The epochs that a leader of a share-partition writes are noted, and a negative start offset is none",
    ),
    Allowed(
        ("ReadShareGroupStateSummary",),
        r"(delivery_complete_count|start_offset): Kafka 0, kbroker -1",
        "What no leader of a share-partition has written yet is -1, for unknown",
    ),
    Allowed(
        ("AlterShareGroupOffsets",),
        r"topic_id: Kafka 'topic-id(-1)?', kbroker 'zero'$",
        "AlterShareGroupOffsets keeps the id of a topic that the client may not read to itself",
    ),
    Allowed(
        ("GetTelemetrySubscriptions",),
        r"\.(error_code: Kafka 89, kbroker 0|client_instance_id: Kafka 'zero'|accepted_compression_types: Kafka \[\]"
        r"|(push_interval_ms|telemetry_max_bytes): Kafka 0|delta_temporality: Kafka False)",
        "A client instance may ask anew when its connection is gone; of several of one connection Kafka forgets the "
        "last one alone",
    ),
    Allowed(
        ("PushTelemetry",),
        r"error_code: Kafka 0, kbroker ",
        "Kafka without a plug-in for client metrics does not look at them; kbroker reads and shows them",
    ),
    Allowed(("DescribeConfigs",), r"\.documentation: ", "Texts are in kbroker's own words"),
    Allowed(
        ("DescribeConfigs",),
        r"\.(configs|is_default): |resource_type=32",
        "Version 0 says which settings are defaults, and has those of groups; Kafka 3.9.1 says of none that it is one",
        newest=0,
    ),
    Allowed(
        ("Fetch",),
        r"partition_max_bytes=1(, .*)?: .*records: Kafka \[\]",
        "A message larger than what was asked for is shown by a part of one also where it is converted",
        newest=2,
    ),
    Allowed(
        ("DescribeShareGroupOffsets", "AlterShareGroupOffsets"),
        r"partition(s|_index)=\[?(<partition - 1>|-\d+)\]?(, .*)?: \.",
        "A partition below 0 is refused by itself; Kafka fails with the whole group",
    ),
    Allowed(
        ("DescribeShareGroupOffsets",),
        r"group_id=''.*error_code: Kafka 0, kbroker 24",
        "A group without a name is refused, whatever is asked of it",
    ),
    Allowed(
        ("DeleteShareGroupOffsets",),
        r"topic_id: Kafka 'zero'",
        "A topic that is refused is named by its id, too",
    ),
    Allowed(("AlterClientQuotas",), r"value=nan", "A quota that is not a number is refused"),
    Allowed(("DescribeQuorum",), r"\.answer", "One node has no KRaft quorum to describe, which the answer says"),
    Allowed(("UpdateFeatures",), r"feature='kraft.version'", "One node is no KRaft cluster, and has no such feature"),
    Allowed(
        ("WriteTxnMarkers",),
        r"(producer_id|transaction_version)=-\d+(, .*)?: .* Kafka 0, kbroker 42",
        "A marker of a producer, or a transaction version, that cannot be is refused",
    ),
    Allowed(
        (ANY,),
        r"error_code: Kafka -1, kbroker [1-9]|(log_start_offset): Kafka 0, kbroker -1",
        "Where Kafka fails with UNKNOWN_SERVER_ERROR, kbroker has the code of the fault",
    ),
)


def reason_of(api: str, version: int, line: str) -> str | None:
    """Why this difference is allowed, or None where it is not."""
    return next((each.reason for each in ALLOWED if each.covers(api, version, line)), None)
