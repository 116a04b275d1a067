"""What viewers with few rights are shown: a first page of their own, a menu and buttons by what they may do.

Of `kbroker.console.rights`, `kbroker.console.overview` for viewers without DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbroker.testing.security import PASSWORD, Security
from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer

PRINCIPAL = {"principal": "User:bob"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Topics `app-orders`, `other`, each with a record and a group; bob may write those that begin `app-`."""
    settings = {
        "kbroker.console.manage": "true",
        "kbroker.metrics.authentication": "basic",
        "kbroker.console.masks": "cards:value.number",
    }
    security = Security("SASL_PLAINTEXT", users={"admin": PASSWORD, "bob": "builder"})
    with BrokerProcess(tmp_path_factory.mktemp("rights"), settings, security=security) as started:
        admin = Viewer(started.metrics_port, f"admin:{PASSWORD}")
        for name in ("app-orders", "other"):
            started.create_topic(name, 2)
            producer = Producer(started.client_settings())
            producer.produce(name, b"x", partition=0)
            assert producer.flush(30) == 0
            consumer = Consumer({**started.client_settings(), "group.id": f"{name}-group"})
            consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
            consumer.close()
        for operation in ("WRITE", "ALTER_CONFIGS"):
            acl = {"kind": "TOPIC", "name": "app-", "pattern": "PREFIXED", "operation": operation, **PRINCIPAL}
            admin.do("acl.add", **acl)
        admin.do("acl.add", kind="GROUP", name="app-", pattern="PREFIXED", operation="READ", **PRINCIPAL)
        yield started


def test_a_viewer_without_the_cluster_has_a_page_of_its_own(broker: BrokerProcess) -> None:
    """The first page that a person sees after logging in would be a refusal."""
    bob = Viewer(broker.metrics_port, "bob:builder")
    assert bob.refused("overview") == (403, "This takes DESCRIBE on the cluster.")
    told = bob.wait("own", lambda value: value["lag"] == 1 and value["record_count"] == 1)
    assert (told["principal"], told["topic_count"], told["partition_count"]) == ("User:bob", 1, 2)
    assert [row["topic"] for row in told["largest_topics"]] == ["app-orders"]
    assert [row["group_id"] for row in told["furthest_groups"]] == ["app-orders-group"]
    admin = Viewer(broker.metrics_port, f"admin:{PASSWORD}")
    assert {"app-orders", "other"} <= {row["topic"] for row in admin.ask("own")["largest_topics"]}


def test_menu_and_buttons_go_by_rights(broker: BrokerProcess) -> None:
    """The pages would offer what ends in a refusal, or hide what a person may do."""
    bob, admin = Viewer(broker.metrics_port, "bob:builder"), Viewer(broker.metrics_port, f"admin:{PASSWORD}")
    me = bob.ask("me")
    assert me["rights"] == [] and me["may_manage"] and not me["may_create_topics"]
    assert set(me["hidden_pages"]) == {
        "brokers",
        "clusters",
        "clients",
        "users",
        "acls",
        "settings",
        "quotas",
        "schemas",
    }
    for page in set(me["hidden_pages"]) - {"clusters"}:
        assert bob.refused(page)[0] == 403
    assert bob.ask("rights", kind="TOPIC", name="app-orders") == ["WRITE", "ALTER_CONFIGS"]
    assert bob.ask("rights", kind="TOPIC", name="other") == []
    assert bob.ask("rights", kind="GROUP", name="app-orders-group") == ["READ"]
    assert bob.refused("rights", kind="TOPIC")[0] == 400 and bob.refused("rights", kind="USER", name="x")[0] == 400
    assert admin.ask("me")["hidden_pages"] == ["schemas"] and "DELETE" in admin.ask(
        "rights", kind="TOPIC", name="other"
    )
    admin.do("acl.add", kind="TOPIC", name="app-", pattern="PREFIXED", operation="CREATE", **PRINCIPAL)
    assert bob.ask("me")["may_create_topics"]


def test_fields_are_hidden_from_those_who_may_not_alter_the_topic(broker: BrokerProcess) -> None:
    """Everybody who may read a topic for a look would read what only its owners may."""
    bob, admin = Viewer(broker.metrics_port, "bob:builder"), Viewer(broker.metrics_port, f"admin:{PASSWORD}")
    broker.create_topic("cards", 1)
    admin.do("acl.add", kind="TOPIC", name="cards", operation="READ", **PRINCIPAL)
    producer = Producer(broker.client_settings())
    producer.produce("cards", b'{"number": "4111", "name": "Ada"}')
    assert producer.flush(30) == 0

    def seen(viewer: Viewer, **fields: object) -> list[str]:
        return [row["value"]["text"] for row in viewer.ask("messages", topic="cards", **fields)["records"]]

    assert seen(bob) == ['{"number": "***", "name": "Ada"}'] and seen(bob, q="4111") == []
    assert b"4111" not in bob.get("/console/api/download?topic=cards&from=oldest").body
    assert seen(admin) == ['{"number": "4111", "name": "Ada"}'] and len(seen(admin, q="4111")) == 1
