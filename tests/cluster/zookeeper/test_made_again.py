"""A topic that is made again as soon as its deletion is answered, by controllers of kbroker and of Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.zookeeper.processes import Cluster, Kafka, Kbroker, running
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS, PARTITIONS, ANSWERED_MS = 25, 6, 10.0


def make(admin: AdminClient, name: str) -> int:
    """The code that CreateTopics answers."""
    try:
        admin.create_topics([NewTopic(name, PARTITIONS, 3)], operation_timeout=ANSWERED_MS)[name].result(30)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def is_whole(cluster: Cluster, name: str) -> bool:
    """Whether each broker shows all partitions of a topic with a leader."""
    for each in cluster.brokers():
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{each.port}", "log_level": 0})
        topic = admin.list_topics(name, timeout=10).topics[name]
        if topic.error is not None or len(topic.partitions) != PARTITIONS:
            return False
        if any(row.leader < 0 for row in topic.partitions.values()):
            return False
    return True


@pytest.mark.parametrize("kind", [Kbroker, pytest.param(Kafka, marks=pytest.mark.kafka)])
def test_a_topic_whose_making_is_answered_is_there_behind_its_deletion(
    tmp_path: Path, kind: type[Kbroker | Kafka]
) -> None:
    """A client that deletes a topic and makes it again would be told that it is there, and have none.  One that is told
    that it exists already, as its deletion goes on, asks again."""
    with running(tmp_path, [kind] * 3) as cluster:
        admin = cluster.admin()
        assert make(admin, "again") == 0
        refusals = 0
        for number in range(ROUNDS):
            wait_for(lambda: is_whole(cluster, "again"), f"topic {number} to be there", seconds=30)
            admin.delete_topics(["again"], operation_timeout=ANSWERED_MS)["again"].result(30)

            def is_made() -> bool:
                nonlocal refusals
                code = make(admin, "again")
                assert code in (0, KafkaError.TOPIC_ALREADY_EXISTS), code
                refusals += code != 0
                return code == 0

            wait_for(is_made, f"topic {number} to be made again", seconds=30)
        wait_for(lambda: is_whole(cluster, "again"), "the last topic to be there", seconds=30)
        print(f"{kind.__name__}: {refusals} times it existed still in {ROUNDS} rounds")
