"""Metadata asked for again and again in the same words, while the cluster changes."""

from __future__ import annotations

import random
from typing import Any

from tests.broker.client import Client
from tests.conftest import BrokerProcess

NONE, UNKNOWN_TOPIC = 0, 3


def metadata(client: Client, *names: str, create: bool = False) -> Any:
    values = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": create}
    return client.ask("Metadata", 12, values)


def test_the_same_question_is_answered_by_what_is_there_now(broker: BrokerProcess) -> None:
    """Producers would write to partitions that are gone, or never find those that are new."""
    chosen = random.Random(20261122)
    names = ["one", "two", "three"]
    there: dict[str, tuple[bytes, int]] = {}
    with Client(broker.port) as client, Client(broker.port) as other:
        for _ in range(120):
            name = chosen.choice(names)
            if name not in there:
                count = chosen.randrange(1, 4)
                there[name] = (other.create(name, count), count)
            elif chosen.random() < 0.5:
                other.delete(name)
                del there[name]
            else:
                topic_id, count = there[name]
                rows = {"topics": [{"name": name, "count": count + 1, "assignments": None}], "timeout_ms": 30_000}
                assert other.ask("CreatePartitions", 3, rows).results[0].error_code == NONE
                there[name] = (topic_id, count + 1)
            for asks in (client, other, client):
                found = {topic.name: topic for topic in metadata(asks, *names).topics}
                assert sorted(found) == sorted(names)
                for each in names:
                    topic_id, count = there.get(each, (bytes(16), 0))
                    assert found[each].error_code == (NONE if each in there else UNKNOWN_TOPIC)
                    assert (bytes(found[each].topic_id), len(found[each].partitions)) == (topic_id, count)
                everything = asks.ask("Metadata", 12, {"topics": None})
                assert sorted(topic.name for topic in everything.topics) == sorted(there)


def test_a_topic_that_may_be_created_is_created_though_it_was_unknown_before(broker: BrokerProcess) -> None:
    """A producer that comes after a mere look at its topic would wait for it for ever."""
    with Client(broker.port) as client:
        for _ in range(3):
            assert metadata(client, "later").topics[0].error_code == UNKNOWN_TOPIC
        assert metadata(client, "later", create=True).topics[0].error_code == UNKNOWN_TOPIC
        assert metadata(client, "later").topics[0].error_code == NONE
