"""kbroker: a Kafka broker for Linux.  Python orchestrates, Cython does the work on bytes."""

__version__ = "0.1.0"
