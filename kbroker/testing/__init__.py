"""A real broker for tests, in a process of its own, ready in a third of a second.

    with KafkaBroker() as broker:
        broker.create_topic("orders", partitions=3)
        producer = Producer({"bootstrap.servers": broker.bootstrap})

`KafkaBroker(security=Security())` is a broker with TLS, users and ACLs.  `kbroker.testing.plugin` gives pytest the
fixtures `kafka_broker` and `kafka_topic`; `KafkaContainer` stands in for testcontainers' class of that name.
docs/testing.md has examples.
"""

from kbroker.testing.broker import BrokerError, KafkaBroker
from kbroker.testing.container import KafkaContainer
from kbroker.testing.security import Security

__all__ = ["BrokerError", "KafkaBroker", "KafkaContainer", "Security"]
