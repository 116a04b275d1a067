"""Requests of every API of a controller's listener, drawn from a seed, and what is left of them when they are mutated.

Most fields hold what a node of the cluster would send; some hold the bounds of their type, or another field's value.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kbroker._fast.wire.codec import EncodeError
from kbroker.cluster.kraft.quorum_requests import METADATA_TOPIC_ID
from kbroker.cluster.raft.election import LAST_EPOCH
from kbroker.handlers.cluster.forwarded import FORWARDED
from kbroker.handlers.raft.controllers import APIS
from kbroker.protocol.api import ApiKey
from kbroker.protocol.frames import encode_request
from kbroker.protocol.schema import NATURAL_DEFAULTS, Field, MessageSchema, parse_versions
from kbroker.records.batch import RecordBatchBuilder
from kbroker.schemas import request_message, request_schema
from kbroker.types import CLUSTER_METADATA_TOPIC
from tests.protocol.names import is_nullable
from tests.scenarios.wire import build, struct_fields

SERVED = {**APIS, ApiKey.ENVELOPE: (0, 0)}
ELECTIONS = frozenset({ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH})
BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
SOUND, EXTREME = 0.93, 0.97
MOST_ITEMS = 3
WHOLE = 0.6
"""So many frames are left as they were made, with whatever is in their fields."""
LENGTH = struct.Struct(">i")
QUORUM_APIS = frozenset(
    {ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.DESCRIBE_QUORUM, ApiKey.FETCH_SNAPSHOT}
)
WAITS = {"max_wait_ms": (0, 0, 1, 5), "timeout_ms": (0, 1, 1000), "timeoutms": (0, 1, 1000)}
PRINCIPALS = (
    b"\0\0\x05User\x06admin\0\0",
    b"\0\0\x05User\x0aANONYMOUS\0\0",
    b"\0\0\x05User\x06alice\x01\0",
)
"""As `principal_data` writes them: of super users and others, the last by a token."""


@dataclass
class Place:
    """What a stranger has found out about the node that it writes to."""

    cluster_id: str
    node_id: int
    directory_id: bytes
    epoch: int = 1
    end_offset: int = 1
    broker_epochs: tuple[int, ...] = ()
    topic_ids: tuple[bytes, ...] = ()
    features: dict[str, tuple[int, int]] = field(default_factory=dict)


class Frame(NamedTuple):
    """A frame with its length.  `is_whole`: a request as its schema has it, so that its answer can be read."""

    data: bytes
    is_whole: bool
    api_key: int
    version: int


class Stranger:
    """Draws frames; `place` may change meanwhile.  `elects`: what deposes a leader is among them."""

    def __init__(self, rng: random.Random, place: Place, *, elects: bool = True) -> None:
        self._apis = [each for each in SERVED if elects or each not in ELECTIONS]
        self._weights = [
            4 if each in (ApiKey.VOTE, ApiKey.FETCH, ApiKey.BEGIN_QUORUM_EPOCH) else 1 for each in self._apis
        ]
        self.rng = rng
        self.place = place
        self._number = 0
        self._recent: list[bytes] = [b"\0\0\0\0"]

    def frame(self) -> Frame:
        """The next frame."""
        rng = self.rng
        while True:
            (api_key,) = rng.choices(self._apis, self._weights)
            version = rng.randint(*SERVED[api_key])
            try:
                made = self._request(api_key, version)
            except (EncodeError, OverflowError):
                continue  # A value that has no place in its field: it cannot be sent as a field.
            if rng.random() < WHOLE:
                return Frame(made, True, int(api_key), version)
            self._recent = [*self._recent[-7:], made]
            return Frame(self._mutated(made), False, int(api_key), version)

    def _request(self, api_key: ApiKey, version: int) -> bytes:
        self._number = (self._number + 1) & 0x7FFFFFFF
        client_id = self.rng.choice((None, "", "1", "stranger"))
        message = request_message(api_key)
        if api_key is ApiKey.ENVELOPE:
            values = self._envelope()
        else:
            values = _Filler(self, api_key, version).struct(message.schema.fields, "")
        return bytes(encode_request(api_key, version, self._number, client_id, build(message, values)))

    def _envelope(self) -> dict[str, Any]:
        rng = self.rng
        inner = rng.choice([each for each in SERVED if each in FORWARDED or rng.random() < 0.02])
        if inner is ApiKey.ENVELOPE:
            return {"request_data": b"\0\x3a\0\0", "request_principal": b"", "client_host_address": b""}
        data = self._request(inner, rng.randint(*SERVED[inner]))[LENGTH.size :]
        return {
            "request_data": self._damaged(data) if rng.random() < 0.3 else data,
            "request_principal": self._often(PRINCIPALS),
            "client_host_address": self._often((b"\x7f\0\0\1", bytes(15) + b"\1")),
        }

    def _often(self, sound: Sequence[bytes]) -> bytes:
        rng = self.rng
        return rng.choice(sound) if rng.random() < 0.9 else rng.randbytes(rng.randint(0, 20))

    # -- mutations ----------------------------------------------------------------------------------------------------

    def _mutated(self, frame: bytes) -> bytes:
        """Another content behind its own length, or, now and then, behind a length that is not its own."""
        rng = self.rng
        body = self._damaged(frame[LENGTH.size :])
        if rng.random() < 0.93:
            return LENGTH.pack(len(body)) + body
        wrong = rng.choice((0, 1, 7, -1, -(1 << 31), (1 << 31) - 1, 1 << 28, len(body) - 1, len(body) + 1, 1 << 16))
        return LENGTH.pack(wrong) + body

    def _damaged(self, data: bytes) -> bytes:
        rng, made = self.rng, bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.randrange(len(made) + 1)
            match rng.randrange(9):
                case 0 | 1 if at < len(made):
                    made[at] ^= 1 << rng.randrange(8)
                case 2 if at < len(made):
                    made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
                case 3:
                    size = rng.choice((2, 4, 8))
                    bits = 8 * size
                    value = rng.choice((-1, 0, 1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))))
                    made[at : at + size] = value.to_bytes(size, "big", signed=True)
                case 4:
                    del made[at:]
                case 5:
                    del made[at : at + rng.randint(1, 8)]
                case 6:
                    made[at:at] = rng.randbytes(rng.randint(1, 8))
                case 7:
                    other = rng.choice(self._recent)
                    made[at:] = other[min(at, len(other)) :]
                case 8 if len(made) > 8:
                    # The body of one API behind the header of another, or of another version.
                    made[:4] = struct.pack(">hh", rng.choice([*SERVED, 18, 0, 999]), rng.randint(-1, 18))
        return bytes(made)


class _Filler:
    """Values for the fields of one request."""

    def __init__(self, stranger: Stranger, api_key: ApiKey, version: int) -> None:
        self._rng = stranger.rng
        self._place = stranger.place
        self._api = api_key
        self._version = version
        self._schema: MessageSchema = request_schema(api_key)

    def struct(self, fields: Sequence[Field], within: str) -> dict[str, Any]:
        """Values of the fields that the version has."""
        return {
            each.name: self._field(each, within)
            for each in fields
            if self._version in parse_versions(each.versions)
            and (self._version not in parse_versions(each.tagged) or self._rng.random() < 0.7)
        }

    def _field(self, each: Field, within: str) -> Any:
        rng = self._rng
        if is_nullable(each, self._version) and rng.random() < (0.5 if each.is_struct else 0.1):
            return None
        if not each.is_array:
            return self._item(each, within)
        if self._api in QUORUM_APIS and each.name in ("topics", "partitions"):
            count = 1 if rng.random() < SOUND else rng.choice((0, 2, 3))
        else:
            count = rng.choice((1, 1, 1, 0, 2, MOST_ITEMS))
        return [self._item(each, within) for _ in range(count)]

    def _item(self, each: Field, within: str) -> Any:
        if each.is_struct:
            return self.struct(struct_fields(self._schema, each), each.name)
        kind, drawn = each.item_type, self._rng.random()
        if drawn < SOUND:
            found = self._sound(each, within)
            if found is not None:
                return found
        if kind in BITS:
            found = self._number(kind, drawn < EXTREME)
            # An epoch that is believed leaves few behind it: the largest of all is refused.
            is_believed = self._api in QUORUM_APIS and each.name.endswith("epoch") and 1000 < found < LAST_EPOCH
            return LAST_EPOCH if is_believed else found
        if kind == "records":
            return self._records()
        if kind == "string":
            return self._rng.choice(("", "x", "t0", "User:alice", "é" * 5, "a" * 300))
        if kind == "bytes":
            return self._rng.randbytes(self._rng.choice((0, 1, 16, 64)))
        if kind == "uuid":
            return self._rng.choice((bytes(16), bytes(15) + b"\1", self._rng.randbytes(16)))
        if kind == "bool":
            return self._rng.random() < 0.5
        if kind == "float64":
            return self._rng.choice((0.0, 1.0, -1.0, 1e308, float("inf"), float("nan")))
        return NATURAL_DEFAULTS[kind]

    def _number(self, kind: str, is_extreme: bool) -> int:
        rng, bits = self._rng, BITS[kind]
        low, high = (0, (1 << bits) - 1) if kind.startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        if is_extreme:
            return rng.choice((low, low + 1, min(-1, low) if low else 0, high - 1, high))
        return rng.choice((0, 1, 2, 3, 5, 100, min(high, 10_000)))

    def _records(self) -> bytes:
        builder = RecordBatchBuilder(self._place.end_offset)
        builder.append(None, b"value", 0)
        return bytes(builder.build())

    def _sound(self, each: Field, within: str) -> Any:
        rng, place, name, kind = self._rng, self._place, each.name, each.item_type
        if name in WAITS:
            return rng.choice(WAITS[name])
        if kind == "string":
            return self._text(name, within)
        if kind == "uuid":
            if "topic" in name:
                return rng.choice((METADATA_TOPIC_ID, *place.topic_ids))
            return rng.choice((place.directory_id, *(bytes([number]) * 16 for number in (7, 8))))
        if kind not in BITS:
            return None
        if "broker_epoch" in name:
            return rng.choice((-1, *place.broker_epochs))
        if name.endswith("epoch"):
            return max(0, place.epoch + rng.choice((0, 0, 0, 0, -1, 1)))
        if "offset" in name:
            return max(0, place.end_offset - rng.choice((0, 0, 0, 1, 5)))
        if name.endswith("_id") or name in ("replicas", "broker_ids", "new_isr", "preferred_successors"):
            return rng.choice((place.node_id, place.node_id, 1, 2, 3))
        if "partition" in name or name in ("index", "partitions"):
            return 0 if self._api in QUORUM_APIS | {ApiKey.FETCH} else rng.choice((0, 1, 2))
        return self._count(name, within)

    def _count(self, name: str, within: str) -> int | None:
        found: dict[str, tuple[int, ...]] = {
            "num_partitions": (1, 3, -1),
            "count": (1, 2, 6),
            "replication_factor": (1, -1),
            "max_bytes": (1 << 20,),
            "position": (0, 0, 100),
            "resource_type": (2, 4, 8, 32),
            "config_operation": (0, 1, 2, 3),
            "port": (9092, 1),
            "security_protocol": (0, 1, 3),
            "min_supported_version": (0, 1),
            "max_supported_version": (1, 30),
            "max_version_level": (0, 1, 2, 30),
            "upgrade_type": (1, 2, 3),
            "election_type": (0, 1),
            "endpoint_type": (1, 2),
            "mechanism": (1, 2),
            "iterations": (4096, 8192),
            "session_epoch": (-1, 0),
            "max_lifetime_ms": (-1, 60_000),
            "renew_period_ms": (1000,),
            "expiry_time_period_ms": (-1, 1000),
            "resource_pattern_type": (3, 4),
            "operation": (2, 3, 4, 10),
            "permission_type": (2, 3),
        }
        return self._rng.choice(found[name]) if name in found else None

    def _text(self, name: str, within: str) -> str:
        rng = self._rng
        if name == "cluster_id":
            return self._place.cluster_id
        if name in ("topic_name", "topic") or (name == "name" and within == "topics"):
            is_quorum = self._api in QUORUM_APIS or self._api is ApiKey.FETCH
            return CLUSTER_METADATA_TOPIC if is_quorum else rng.choice(("t0", "t1", "t2", "t3"))
        if name == "name" and within in ("features", "feature_updates", "feature"):
            return rng.choice((*self._place.features, "kraft.version", "metadata.version"))
        found: dict[str, tuple[str, ...]] = {
            "name": ("CONTROLLER", "PLAINTEXT", "t0", "retention.ms", "min.insync.replicas", "alice"),
            "topic_names": ("t0", "t1"),
            "host": ("127.0.0.1", "localhost"),
            "value": ("1", "2", "100000", "compact", "-1"),
            "key": ("producer_byte_rate", "consumer_byte_rate", "request_percentage"),
            "entity_type": ("user", "client-id", "ip"),
            "entity_name": ("alice", "bob", "127.0.0.1"),
            "feature": ("metadata.version", "kraft.version", "group.version", "transaction.version"),
            "resource_name": ("t0", "1", "", "*", "kafka-cluster"),
            "principal": ("User:alice", "User:*"),
            "principal_type": ("User",),
            "principal_name": ("alice",),
            "owner_principal_type": ("User",),
            "owner_principal_name": ("alice",),
            "mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
            "rack": ("a", "b"),
        }
        return rng.choice(found.get(name, ("", "x")))
