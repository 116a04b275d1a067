"""Directories of Apache Kafka made kbroker's, and back: what their metadata says, what can come along, and the copy."""
