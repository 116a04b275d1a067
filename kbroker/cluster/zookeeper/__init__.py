"""A cluster of brokers that ZooKeeper keeps: znodes, sessions, membership and the elected controller."""
