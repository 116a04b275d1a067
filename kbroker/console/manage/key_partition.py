"""Which partition Kafka's own producers choose for a key: MurmurHash2 (Austin Appleby, public domain) of its bytes with
Kafka's seed, without the sign, modulo the number of partitions."""

from __future__ import annotations

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SHIFT = 24
_WORD = 4


def murmur2(data: bytes) -> int:
    """The hash, 32 bits."""
    whole = len(data) - len(data) % _WORD
    found = _SEED ^ len(data)
    for at in range(0, whole, _WORD):
        word = int.from_bytes(data[at : at + _WORD], "little") * _FACTOR & _MASK
        word = (word ^ (word >> _SHIFT)) * _FACTOR & _MASK
        found = (found * _FACTOR & _MASK) ^ word
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    found = (found ^ (found >> 13)) * _FACTOR & _MASK
    return found ^ (found >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
