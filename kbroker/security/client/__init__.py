"""How a client proves who it is and encrypts: kbroker's commands, Spark's sources and brokers among each other."""
