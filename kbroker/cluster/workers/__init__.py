"""A cluster on one host, without ZooKeeper: worker 1 is the controller, the others are told by it."""
