"""The cluster before a replay: are the topics there, with enough partitions, and where do they end."""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer

from kbroker.administration.topics import NewTopic
from kbroker.client.admin import ClusterAdmin
from kbroker.client.cluster import ClientSettings, Cluster
from kbroker.client.errors import ClientError
from kbroker.client.list_offsets import list_offsets
from kbroker.replay.player.operations import READY_SECONDS, begin_transactions
from kbroker.replay.player.plan import Plan
from kbroker.replay.player.settings import Delivery, ReplayError
from kbroker.security.client.client_security import ClientSecurityError
from kbroker.security.client.librdkafka_settings import librdkafka_security
from kbroker.types import LATEST

CREATE_SECONDS = 30.0
Offsets = dict[str, dict[str, int]]


def ready_topics(bootstrap: str, delivery: Delivery, plan: Plan, create_partitions: int | None) -> Offsets:
    """Where each partition ends, by topic and number (as text, as `startingOffsets` takes it).

    Topics that are missing are created with `create_partitions` partitions, or as many as the trace names; with None
    they are an error.  ReplayError for what keeps the replay from starting.
    """
    try:
        security = librdkafka_security(delivery.client)
    except ClientSecurityError as error:
        raise ReplayError(str(error)) from None
    try:
        with Cluster(bootstrap, ClientSettings(security=security)) as cluster:
            there = cluster.list_topics()
            missing = sorted(plan.topics.keys() - there.keys())
            if missing and create_partitions is None:
                raise ReplayError(
                    f"topic {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''} does not exist at {bootstrap}: "
                    "create it, or say --create-topics PARTITIONS"
                )
            if missing:
                assert create_partitions is not None
                new = [NewTopic(name, max(create_partitions, plan.topics[name] + 1)) for name in missing]
                ClusterAdmin(cluster).make_topics(new)
                cluster.forget()
            found = _described(cluster, sorted(plan.topics))
            for name, highest in plan.topics.items():
                if highest >= len(found[name]):
                    raise ReplayError(f"the trace names partition {highest} of topic {name}, which has "
                                      f"{len(found[name])}: add partitions, or leave record.partition out")  # fmt: skip
            wanted = {(name, number): LATEST for name, numbers in found.items() for number in numbers}
            ends = list_offsets(cluster, wanted)
    except ClientError as error:
        raise ReplayError(str(error)) from None
    return {
        name: {str(number): ends[name, number].offset for number in numbers} for name, numbers in sorted(found.items())
    }


def check_transactions(bootstrap: str, run_id: str, delivery: Delivery) -> None:
    """ReplayError where transactions are wanted and the cluster has none."""
    if delivery.transaction_records is not None:
        producer = Producer(delivery.producer(bootstrap, f"kbroker-replay-{run_id}-check"))
        begin_transactions(producer, READY_SECONDS)
        producer.abort_transaction(READY_SECONDS)


def check_client(bootstrap: str, delivery: Delivery) -> None:
    """ReplayError for settings that librdkafka does not take."""
    try:
        Producer(delivery.producer(bootstrap, None))
    except (KafkaException, ValueError, TypeError) as error:
        first = error.args[0] if error.args else error
        raise ReplayError(
            f"the client refuses its settings: {first.str() if hasattr(first, 'str') else first}"
        ) from None


def _described(cluster: Cluster, names: list[str]) -> dict[str, list[int]]:
    """The partitions of each topic, once each has a leader."""
    patience = cluster.patience("waiting for the topics", CREATE_SECONDS)
    while True:
        found = cluster.list_topics()
        waiting = [
            name
            for name in names
            if name not in found or any(one.leader_id < 0 for one in found[name].partitions.values())
        ]
        if not waiting:
            return {name: sorted(found[name].partitions) for name in names}
        patience.again(ClientError(f"topic {waiting[0]} has no leader yet"))
