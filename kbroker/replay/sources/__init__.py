"""The Spark data sources `kbroker` (a broker) and `kbroker-log` (segment directories)."""
