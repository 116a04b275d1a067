"""Which version of each API the brokers of a cluster send each other where they do not ask for ApiVersions.

Of a ZooKeeper cluster the setting `inter.broker.protocol.version` (IBP) says so: controllers and followers go by it;
only what is sent to the controller is negotiated.  The rows are those that Apache Kafka 3.9.1 was seen to send.  Of a
KRaft cluster it is the level of `metadata.version`, which may change while brokers run: followers go by it
(`MetadataProtocol`), all else is negotiated.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from kbroker.metadata.features import METADATA_VERSION
from kbroker.schemas import schema

if TYPE_CHECKING:
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, MetadataDelta

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


# The first level of metadata.version, its release, and the versions of Fetch and ListOffsets from there on (Kafka's
# MetadataVersion).  Levels below the first are of releases that no 4.x joins.
_LEVELS = """
 7 3.3 13  7
 9 3.5 14  8
10 3.5 15  8
19 3.7 16  8
21 3.9 17  9
25 4.0 17 10
27 4.1 18 10
29 4.2 18 11
"""
_EPOCH_REQUEST = 4
_ALTER_PARTITION = 3
_ALLOCATE_IDS = 0


def _levels() -> tuple[tuple[int, ...], tuple[ProtocolVersion, ...]]:
    levels, rows = [], []
    for line in _LEVELS.strip().split("\n"):
        level, release, fetch, list_offsets = line.split()
        levels.append(int(level))
        rows.append(
            ProtocolVersion(
                release=tuple(map(int, release.split("."))),
                leader_and_isr=NOT_SENT,
                stop_replica=NOT_SENT,
                update_metadata=NOT_SENT,
                controlled_shutdown=NOT_SENT,
                fetch=int(fetch),
                offset_for_leader_epoch=_EPOCH_REQUEST,
                list_offsets=int(list_offsets),
                alter_partition=_ALTER_PARTITION,
                allocate_producer_ids=_ALLOCATE_IDS,
            )
        )
    return tuple(levels), tuple(rows)


_FIRST_LEVELS, _ROWS_BY_LEVEL = _levels()


def metadata_protocol(level: int) -> ProtocolVersion:
    """The row of a level of metadata.version; a newer level has the last row, an older one the first."""
    return _ROWS_BY_LEVEL[max(0, bisect_right(_FIRST_LEVELS, level) - 1)]


class MetadataProtocol:
    """The row of a KRaft cluster, by the image of the moment."""

    def __init__(self, cache: MetadataCache) -> None:
        self._row = metadata_protocol(cache.image.features.level(METADATA_VERSION))
        cache.subscribe(self._follow)

    def _follow(self, _old: ClusterImage, new: ClusterImage, delta: MetadataDelta) -> None:
        if delta.features is not None:
            self._row = metadata_protocol(new.features.level(METADATA_VERSION))

    def __call__(self) -> ProtocolVersion:
        return self._row
