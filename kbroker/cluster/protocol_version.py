"""`inter.broker.protocol.version` (IBP): which version of each API the brokers of a cluster send each other.

Controllers and followers never ask for ApiVersions; all members go by this one setting.  Only what is sent to the
controller is negotiated.  The rows are those that Apache Kafka 3.9.1 was seen to send.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType

from kbroker.schemas import schema

NOT_SENT = -1
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
"""What a controller's request says of a partition whose topic is being deleted."""

# The first versions in which controllers' requests and their answers have certain fields, for the sender and for the
# receiver.
_STATES, _ANSWER = schema("LeaderAndIsrRequest"), schema("LeaderAndIsrResponse")
TOPICS_IN_LEADER_AND_ISR = _STATES.first_version("topic_states")
TOPIC_IDS_IN_LEADER_AND_ISR_ANSWER = _ANSWER.first_version("topics")
TOPICS_IN_STOP = schema("StopReplicaRequest").first_version("topics")
STATES_IN_STOP = schema("StopReplicaRequest").first_version("topic_states")
TOPICS_IN_UPDATE = schema("UpdateMetadataRequest").first_version("topic_states")
ENDPOINTS_IN_UPDATE = schema("UpdateMetadataRequest").first_version("live_brokers.endpoints")
LISTENER_NAMES_IN_UPDATE = schema("UpdateMetadataRequest").first_version("live_brokers.endpoints.listener")
_LAST_EPOCH_IN_FETCH = schema("FetchRequest").first_version("topics.partitions.last_fetched_epoch")
LATEST = "3.9"


@dataclass(frozen=True, slots=True)
class ProtocolVersion:
    """One IBP.  NOT_SENT: the API is not used at this IBP, such as AlterPartition where leaders write ISR changes to
    ZooKeeper themselves.

    `alter_partition` and `allocate_producer_ids` are the highest version that may be negotiated.
    """

    release: tuple[int, ...]
    leader_and_isr: int
    stop_replica: int
    update_metadata: int
    controlled_shutdown: int
    fetch: int
    offset_for_leader_epoch: int
    list_offsets: int
    alter_partition: int
    allocate_producer_ids: int

    @property
    def truncates_on_fetch(self) -> bool:
        """Whether a fetch's answer says where logs part (KIP-595); else followers ask OffsetForLeaderEpoch."""
        return self.fetch >= _LAST_EPOCH_IN_FETCH

    @property
    def text(self) -> str:
        """As the setting has it, without the `-IV` part."""
        return ".".join(map(str, self.release))


_ROWS = """
0.8.2   0 0 0 0  0 -1 0 -1 -1
0.9.0   0 0 1 1  1 -1 0 -1 -1
0.10.0  0 0 2 1  2 -1 0 -1 -1
0.10.1  0 0 2 1  3 -1 1 -1 -1
0.10.2  0 0 3 1  3 -1 1 -1 -1
0.11.0  0 0 3 1  5  0 2 -1 -1
1.0     1 0 4 1  5  0 2 -1 -1
1.1     1 0 4 1  7  0 2 -1 -1
2.0     1 0 4 1  8  1 3 -1 -1
2.1     1 0 4 1 10  2 4 -1 -1
2.2     2 1 5 2 10  2 5 -1 -1
2.3     2 1 5 2 11  3 5 -1 -1
2.4     4 2 6 3 11  3 5 -1 -1
2.5     4 2 6 3 11  3 5 -1 -1
2.6     4 3 6 3 11  3 5 -1 -1
2.7     4 3 6 3 12  3 5  1 -1
2.8     5 3 7 3 12  3 6  3 -1
3.0     5 3 7 3 12  4 7  3  0
3.1     5 3 7 3 13  4 7  3  0
3.2     6 3 7 3 13  4 7  3  0
3.3     6 3 7 3 13  4 7  3  0
3.4     7 4 8 3 13  4 7  3  0
3.5     7 4 8 3 15  4 8  3  0
3.6     7 4 8 3 15  4 8  3  0
3.7     7 4 8 3 16  4 8  3  0
3.8     7 4 8 3 16  4 8  3  0
3.9     7 4 8 3 17  4 9  3  0
"""


def _table() -> dict[str, ProtocolVersion]:
    rows = {}
    for line in _ROWS.split("\n"):
        if line:
            release, *numbers = line.split()
            rows[release] = ProtocolVersion(tuple(map(int, release.split("."))), *map(int, numbers))
    return rows


PROTOCOL_VERSIONS = MappingProxyType(_table())


def protocol_version(text: str) -> ProtocolVersion:
    """The row of a setting such as `3.9-IV0`, `2.7` or `0.10.2-IV0`.  ValueError for one that is not known."""
    match = re.fullmatch(r"(\d+(?:\.\d+){1,3})(?:-IV\d+)?", text.strip())
    parts = match.group(1).split(".") if match is not None else []
    length = 3 if parts[:1] == ["0"] else 2
    row = PROTOCOL_VERSIONS.get(".".join(parts[:length]))
    if row is None:
        raise ValueError(f"inter.broker.protocol.version: {text!r} is not one of {', '.join(PROTOCOL_VERSIONS)}")
    return row
