"""Transactions before an authorizer: no request of a client that may not use its transactional id reaches the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker.clock import SYSTEM_CLOCK
from kbroker.errors import ErrorCode
from kbroker.gate.gatekeeper import BrokerGatekeeper
from kbroker.handlers.transactions.transactions import handle_add_partitions_to_txn
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.security_image import Acl
from kbroker.schemas import wire
from kbroker.security.acl.kinds import PatternType, Permission
from kbroker.security.acl.settings import AuthorizerSettings
from kbroker.security.acl.standard_authorizer import StandardAuthorizer
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.principal import ANONYMOUS
from tests.gate.rules import Rules, known, meters
from tests.handlers.admin_broker import AdminBroker, Context
from tests.unbroken import finished

REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_transactional_id_of_others_cannot_be_used(tmp_path: Path) -> None:
    """Any client could fence the producers of others, or end their transactions."""
    broker = AdminBroker.start(tmp_path)
    try:
        broker.ask("CreateTopics", 7, {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}]})
        # The id "mine" may be written, the topic may not; nothing may be done to "others".
        rules = Rules((ANONYMOUS, Operation.WRITE, "mine"))
        keeper = BrokerGatekeeper(SYSTEM_CLOCK, ClusterImage("c"), meters(), rules)
        connection: Any = broker.connection
        connection.session = known(ANONYMOUS)
        broker.gate = keeper.gate_for(connection, "test")
        producer = {"transactional_id": "others", "producer_id": 1, "producer_epoch": 0}
        asked = {"transactional_id": "others", "transaction_timeout_ms": 1_000}
        assert broker.ask("InitProducerId", 4, asked)["error_code"] == REFUSED
        assert broker.ask("EndTxn", 3, {**producer, "committed": True})["error_code"] == REFUSED
        assert broker.ask("AddOffsetsToTxn", 3, {**producer, "group_id": "g"})["error_code"] == REFUSED
        mine = {**producer, "transactional_id": "mine"}
        grouped = broker.ask("AddOffsetsToTxn", 3, {**mine, "group_id": "g"})
        assert grouped["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
        request = wire.AddPartitionsToTxnRequest
        topics = [request.AddPartitionsToTxnTopic(name="t", partitions=[0])]
        codes = {}
        for name in ("mine", "others"):
            context: Any = Context(broker.services, 24, 3, broker.connection, gate=broker.gate)
            asked_for: Any = request(v3_and_below_transactional_id=name, v3_and_below_topics=topics)
            answer: Any = finished(handle_add_partitions_to_txn(context, asked_for))
            (topic,) = answer.results_by_topic_v3_and_below
            codes[name] = topic.results_by_partition[0].partition_error_code
        assert codes == {"mine": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "others": REFUSED}
        context = Context(broker.services, 24, 5, broker.connection, gate=broker.gate)
        of_a_broker: Any = finished(handle_add_partitions_to_txn(context, request()))
        assert of_a_broker.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    finally:
        broker.stop()


def test_rights_to_a_group_are_none_to_the_transactional_id_of_its_name(tmp_path: Path) -> None:
    """A consumer whose group is called as a producer's transactional id could end that producer's transactions, and the
    producer itself could not."""
    broker = AdminBroker.start(tmp_path)
    try:
        rules = [
            Acl(kind, name, PatternType.LITERAL, str(ANONYMOUS), "*", Operation.WRITE, Permission.ALLOW)
            for kind, name in ((ResourceKind.GROUP, "orders"), (ResourceKind.TRANSACTIONAL_ID, "mine"))
        ]
        authorizer = StandardAuthorizer(AuthorizerSettings(), rules)
        keeper = BrokerGatekeeper(SYSTEM_CLOCK, ClusterImage("c"), meters(), authorizer)
        connection: Any = broker.connection
        connection.session = known(ANONYMOUS)
        broker.gate = keeper.gate_for(connection, "test")
        # The transactional id is asked for first; the group of the offsets may not be read.
        for name, code in (("orders", REFUSED), ("mine", ErrorCode.GROUP_AUTHORIZATION_FAILED)):
            asked = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0, "group_id": "g"}
            assert broker.ask("AddOffsetsToTxn", 3, asked)["error_code"] == code
    finally:
        broker.stop()
