"""Which partition of a state topic a group (or, later, a transactional id) belongs to: Java's `String.hashCode`, made
positive the way Kafka's `Utils.abs` does, modulo the number of partitions."""

from __future__ import annotations

_MIN_INT = 0x80000000


def java_string_hash(text: str) -> int:
    """`String.hashCode` as a signed 32-bit number: over UTF-16 code units, as Java counts characters."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(data), 2):
        value = (31 * value + (data[index] << 8) + data[index + 1]) & 0xFFFFFFFF
    return value - 0x100000000 if value >= _MIN_INT else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition that holds the state of `key`."""
    value = java_string_hash(key)
    # The one number without a positive counterpart counts as zero.
    return (0 if value == -_MIN_INT else abs(value)) % partition_count
