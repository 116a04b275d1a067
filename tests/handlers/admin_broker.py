"""A broker without network and logs: the real metadata layer on a real store, asked through the real codec."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.local_controller import LocalController
from kbroker.cluster.stored_image import stored_image
from kbroker.config import BrokerConfig
from kbroker.handlers.cluster.endpoints import local_broker
from kbroker.handlers.services import Services
from kbroker.handlers.table import Handler, advertised_ranges
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.client_metrics_overrides import ClientMetricsOverrides
from kbroker.metadata.local_store import LocalStore
from kbroker.metadata.producer_id_manager import ProducerIdManager
from kbroker.protocol.schema import Field, parse_versions
from kbroker.schemas import message
from kbroker.security.principal import AuthenticationState, Session
from kbroker.telemetry.clients import TelemetryClients
from tests.unbroken import UNBROKEN, finished

FAMILIES = (
    "topics.alter_configs",
    "api_versions",
    "cluster.client_quotas",
    "cluster.cluster",
    "topics.configs",
    "topics.metadata",
    "cluster.raft_voters",
    "cluster.telemetry",
    "topics.topics",
    "transactions.transactions",
)
HANDLERS: dict[int, Handler] = {
    int(row.api_key): row
    for family in FAMILIES
    for row in importlib.import_module(f"kbroker.handlers.{family}").HANDLERS
}
FIXED_IDS = {"00" * 16, "ab" * 16, "cd" * 16}
NODE_ID = 1


@dataclass
class Connection:
    """Where a test's requests come from."""

    local_host: str = "127.0.0.1"
    local_port: int = 9350
    listener_name: str = "PLAINTEXT"
    peer_host: str = "127.0.0.1"
    peer_port: int = 50_000
    introduction: tuple[int, bytes] | None = None
    session: Session = field(default_factory=lambda: Session(state=AuthenticationState.AUTHENTICATED))

    def close(self, reason: str) -> None:
        raise AssertionError(f"no admin API hangs up, but: {reason}")


@dataclass
class Context:
    """One request of a test."""

    services: Services
    api_key: int
    api_version: int
    connection: Connection
    correlation_id: int = 1
    client_id: str | None = "test"
    open: bool = True
    waiting: Any = None
    gate: Any = None

    def respond(self, response: Any) -> None:
        raise AssertionError("admin APIs answer by return value")


@dataclass
class AdminBroker:
    """Services over a directory; `ask` sends one request and returns the answer as plain values."""

    services: Services
    store: LocalStore
    connection: Connection = field(default_factory=Connection)
    seen_ids: dict[str, str] = field(default_factory=dict)
    gate: Any = None

    @classmethod
    def start(cls, directory: Path, settings: Mapping[str, object] | None = None) -> AdminBroker:
        config = BrokerConfig.from_mapping({"log.dirs": str(directory), "num.partitions": 4, **(settings or {})})
        store = LocalStore.open(directory / "metadata.sqlite")
        cache = MetadataCache(stored_image(store, config, NODE_ID))
        broker_settings = BrokerSettings(config, cache, NODE_ID)
        controller = LocalController(cache, store, broker_settings, NODE_ID, UNBROKEN)
        registered, _ = finished(controller.register_broker(local_broker(config, NODE_ID)))
        services = Services(
            settings=broker_settings,
            clock=SYSTEM_CLOCK,
            node_id=NODE_ID,
            metadata_cache=cache,
            controller=controller,
            administration=controller,
            producer_ids=ProducerIdManager(partial(controller.allocate_producer_ids, registered)),
            slices=UNBROKEN,
            advertised_apis={"PLAINTEXT": advertised_ranges(HANDLERS.values())},
            telemetry=TelemetryClients(ClientMetricsOverrides(cache), SYSTEM_CLOCK.monotonic),
        )
        return cls(services, store)

    def stop(self) -> None:
        self.store.close()

    def ask(self, api: str, version: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `request`, both having passed the codec in that version."""
        request_class, response_class = message(f"{api}Request"), message(f"{api}Response")
        wire = request_class.program(version).encode(
            _build(request_class, request_class.schema.fields, request_class.structs, self._with_ids(request))
        )
        row = HANDLERS[request_class.api_key]
        assert row.serves(version)
        if api == "ApiVersions":
            self.connection.introduction = version, bytes(wire)
        context = Context(self.services, request_class.api_key, version, self.connection, gate=self.gate)
        answer: Any = finished(row.handle(context, request_class.program(version).decode(wire)))
        self._remember_ids()
        program = response_class.program(version)
        plain: dict[str, Any] = self._plain(
            program.decode(program.encode(answer)), response_class.schema.fields, version
        )
        return plain

    def _remember_ids(self) -> None:
        for topic in self.services.metadata_cache.image.topics.values():
            self.seen_ids[topic.topic_id.hex()] = topic.name

    def _with_ids(self, value: Any) -> Any:
        """`$id:name` becomes the topic's id; ids are hexadecimal text otherwise."""
        self._remember_ids()
        if isinstance(value, Mapping):
            return {key: self._with_ids(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._with_ids(item) for item in value]
        if isinstance(value, str) and value.startswith("$id:"):
            topic = self.services.metadata_cache.topic(value[4:])
            return topic.topic_id if topic is not None else b"\xee" * 16
        return bytes.fromhex(value) if value in FIXED_IDS else value

    def _plain(self, struct: Any, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
        values = {}
        for row in fields:
            tagged = version in parse_versions(row.tagged)
            if version not in parse_versions(row.versions):
                continue
            value = self._plain_value(getattr(struct, row.name), row, version)
            if not tagged or value not in (0, -1, [], False):
                values[row.name] = value
        return values

    def _plain_value(self, value: Any, row: Field, version: int) -> Any:
        if isinstance(value, list):
            return [self._plain_value(item, row, version) for item in value]
        if row.is_struct and value is not None:
            return self._plain(value, row.fields, version)
        if isinstance(value, bytes):
            text = value.hex()
            if text in self.seen_ids:
                return f"$id:{self.seen_ids[text]}"
            return text if text in FIXED_IDS else "$new"
        return "$cluster" if row.name == "cluster_id" and value == self.store.cluster_id else value


def _build(struct_class: Any, fields: tuple[Field, ...], structs: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    known = {row.name: row for row in fields}
    return struct_class(**{name: _value(known[name], structs, value) for name, value in values.items()})


def _value(row: Field, structs: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, list):
        return [_value(row, structs, item) for item in value]
    if row.is_struct and value is not None:
        return _build(structs[row.item_type], row.fields, structs, value)
    return value
