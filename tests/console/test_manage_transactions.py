"""Transactions, aborted from the console.

Also of `kbroker.console.manage.transactions`.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer


def test_an_open_transaction_is_aborted_and_its_producer_fenced(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """Readers of committed records would wait for a producer that never comes back, until its time-out."""
    name = console_broker.create_topic("held", 2)
    settings = {"bootstrap.servers": console_broker.bootstrap, "transactional.id": "holder", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    assert "no open transaction" in viewer.cannot("transaction.abort", id="holder")[2]
    producer.begin_transaction()
    for index in range(2):
        producer.produce(name, b"held", partition=index)
    assert producer.flush(30) == 0
    plan = viewer.plan("transaction.abort", id="holder")
    assert plan["confirm"] == "holder" and plan["table"]["rows"] == [[name, 0], [name, 1]]
    assert viewer.perform(plan)["sentences"] == ["The transaction of holder is aborted."]
    viewer.wait("ends", lambda told: told["ends"] == [2, 2], topic=name, committed="yes")
    assert viewer.ask("messages", topic=name, partition=0, committed="yes")["records"] == []
    with pytest.raises(KafkaException, match="fenced"):
        producer.commit_transaction(30)
    assert viewer.cannot("transaction.abort", id="nobody")[1] == "TRANSACTIONAL_ID_NOT_FOUND"
