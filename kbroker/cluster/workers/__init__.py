"""A cluster on one host, without ZooKeeper: worker 1 is the controller, the others follow it."""
