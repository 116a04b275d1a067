"""Kafka's API keys, and which header version goes with which version of an API."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """Every API key of Kafka 4.3, and 4 to 7, which it has removed."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def message_name(self) -> str:
        """Kafka's name of the API: `ListOffsets` for LIST_OFFSETS."""
        return self.name.title().replace("_", "")


NEVER_FLEXIBLE = 0x7FFF

# The first version whose messages are flexible (KIP-482), by API key.
_FLEXIBLE_FROM: tuple[int, ...] = (
    9,
    12,
    6,
    9,
    4,
    2,
    6,
    3,
    8,
    6,  # 0 to 9
    3,
    6,
    4,
    4,
    4,
    5,
    3,
    NEVER_FLEXIBLE,
    3,
    5,  # 10 to 19
    4,
    2,
    2,
    4,
    3,
    3,
    3,
    1,
    3,
    2,  # 20 to 29
    2,
    2,
    4,
    2,
    2,
    2,
    2,
    2,
    2,
    2,  # 30 to 39
    2,
    2,
    2,
    2,
    1,
    0,
    0,
    NEVER_FLEXIBLE,
    1,
    1,  # 40 to 49
    0,
    0,
    0,
    1,
    1,
    0,
    0,
    0,
    0,
    0,  # 50 to 59
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,  # 60 to 69
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,  # 70 to 79
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,  # 80 to 89
    0,
    0,
    0,  # 90 to 92
)


def is_flexible(api_key: int, version: int) -> bool:
    """Whether the messages of this version have compact lengths and tagged fields.  KeyError for an unknown key."""
    if not 0 <= api_key < len(_FLEXIBLE_FROM):
        raise KeyError(api_key)
    return version >= _FLEXIBLE_FROM[api_key]


def request_header_version(api_key: int, version: int) -> int:
    """0 has no client id (ControlledShutdown v0 alone), 1 has one, 2 has tagged fields as well."""
    if is_flexible(api_key, version):
        return 2
    return 0 if api_key == ApiKey.CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(api_key: int, version: int) -> int:
    """0 is the correlation id, 1 has tagged fields as well.

    An ApiVersions answer always has header 0, so that a client that asked in too new a version can read it (KIP-511).
    """
    return 1 if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version) else 0


class ApiRange(NamedTuple):
    """One line of an ApiVersions answer."""

    api_key: int
    min_version: int
    max_version: int
