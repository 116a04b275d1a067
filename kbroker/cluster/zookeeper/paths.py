"""Where Kafka keeps what in ZooKeeper (Kafka 3.9, `ZkData`)."""

from __future__ import annotations

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_NAME = "config_change_"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/{CONFIG_CHANGE_NAME}"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONSUMERS = "/consumers"

ROOTS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""What every broker makes at its start, in Kafka's order."""

_SECRET = ("/config/users", "/config/brokers", "/delegation_token/tokens")


def broker(node_id: int) -> str:
    """A broker's registration."""
    return f"{BROKER_IDS}/{node_id}"


def topic(name: str) -> str:
    """A topic's assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{index}"


def state(name: str, index: int) -> str:
    """A partition's leader and ISR."""
    return f"{TOPICS}/{name}/partitions/{index}/state"


def deletion(name: str) -> str:
    """The wish that a topic be deleted."""
    return f"{DELETE_TOPICS}/{name}"


def config(entity_path: str) -> str:
    """The settings of an entity such as `topics/t1`, `brokers/<default>` or `users/alice/clients/app`."""
    return f"/config/{entity_path}"


def topic_config(name: str) -> str:
    """A topic's settings."""
    return f"/config/topics/{name}"


def consumer_ids(group: str) -> str:
    """The parent of the members of an old consumer group."""
    return f"{CONSUMERS}/{group}/ids"


def consumer_owners(group: str) -> str:
    """The parent of what the threads of an old consumer group own."""
    return f"{CONSUMERS}/{group}/owners"


def consumer_offsets(group: str) -> str:
    """The parent of the offsets of an old consumer group."""
    return f"{CONSUMERS}/{group}/offsets"


def consumer_owner(group: str, name: str, index: int) -> str:
    """Which thread of an old consumer group reads a partition."""
    return f"{CONSUMERS}/{group}/owners/{name}/{index}"


def consumer_offset(group: str, name: str, index: int) -> str:
    """The next offset of an old consumer group."""
    return f"{CONSUMERS}/{group}/offsets/{name}/{index}"


def is_secret(path: str) -> bool:
    """Whether Kafka lets only brokers read a path (`zookeeper.set.acl`)."""
    return any(path == each or path.startswith(f"{each}/") for each in _SECRET)


def is_open(path: str) -> bool:
    """Whether Kafka leaves a path to all, as old consumers write there."""
    return path == CONSUMERS or path.startswith(f"{CONSUMERS}/")
