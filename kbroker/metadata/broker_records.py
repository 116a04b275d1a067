"""The records of a KRaft cluster's metadata that concern its brokers and controllers (KIP-631, KIP-841, KIP-858)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kbroker.metadata.image import BrokerImage, ControllerImage, Endpoint
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage

FENCED = 1
"""In a BrokerRegistrationChangeRecord; -1 is unfenced, 0 says nothing of it."""


class _Listener(Protocol):
    name: str
    host: str
    port: int
    security_protocol: int


class _Range(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


class BrokersDraft:
    """What records have changed so far of the brokers and controllers of an image."""

    __slots__ = ("_brokers", "_controllers", "_image")

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._brokers: dict[int, BrokerImage] | None = None
        self._controllers: dict[int, ControllerImage] | None = None

    @property
    def brokers(self) -> Mapping[int, BrokerImage] | None:
        """All brokers by now; None where none has changed."""
        return self._brokers

    @property
    def controllers(self) -> Mapping[int, ControllerImage] | None:
        """All controllers by now; None where none has changed."""
        return self._controllers

    def take(self, value: object) -> bool:
        """Apply a record; whether it concerns brokers or controllers.  MetadataLogError where it contradicts others."""
        match value:
            case wire.BrokerRegistrationChangeRecord():
                self._change(value)
            case wire.RegisterBrokerRecord():
                self._changed()[value.broker_id] = registered(value)
            case wire.UnregisterBrokerRecord():
                self._broker(value.broker_id, value.broker_epoch)
                del self._changed()[value.broker_id]
            case wire.FenceBrokerRecord():
                self._changed()[value.id] = replace(self._broker(value.id, value.epoch), is_fenced=True)
            case wire.UnfenceBrokerRecord():
                self._changed()[value.id] = replace(self._broker(value.id, value.epoch), is_fenced=False)
            case wire.RegisterControllerRecord():
                if self._controllers is None:
                    self._controllers = dict(self._image.controllers)
                self._controllers[value.controller_id] = registered_controller(value)
            case _:
                return False
        return True

    def _changed(self) -> dict[int, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self._image.brokers)
        return self._brokers

    def _broker(self, node_id: int, epoch: int) -> BrokerImage:
        broker = (self._image.brokers if self._brokers is None else self._brokers).get(node_id)
        if broker is None or broker.epoch != epoch:
            raise MetadataLogError(f"a record names broker {node_id} in epoch {epoch}, which is not registered")
        return broker

    def _change(self, value: wire.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(value.broker_id, value.broker_epoch)
        cordoned = value.cordoned_log_dirs
        self._changed()[value.broker_id] = replace(
            broker,
            is_fenced=value.fenced == FENCED if value.fenced else broker.is_fenced,
            in_controlled_shutdown=bool(value.in_controlled_shutdown) or broker.in_controlled_shutdown,
            log_dirs=tuple(value.log_dirs) or broker.log_dirs,
            cordoned_log_dirs=broker.cordoned_log_dirs if cordoned is None else tuple(cordoned),
        )


def registered(value: wire.RegisterBrokerRecord) -> BrokerImage:
    """A broker as it has registered."""
    cordoned = value.cordoned_log_dirs
    return BrokerImage(
        value.broker_id,
        _endpoints(value.end_points),
        value.rack,
        is_fenced=value.fenced,
        epoch=value.broker_epoch,
        in_controlled_shutdown=value.in_controlled_shutdown,
        protocols=_protocols(value.end_points),
        log_dirs=tuple(value.log_dirs),
        cordoned_log_dirs=None if cordoned is None else tuple(cordoned),
        incarnation_id=value.incarnation_id,
        features=_ranges(value.features),
    )


def registered_controller(value: wire.RegisterControllerRecord) -> ControllerImage:
    """A controller as it has registered."""
    return ControllerImage(
        value.controller_id,
        _endpoints(value.end_points),
        _protocols(value.end_points),
        value.incarnation_id,
        _ranges(value.features),
        value.zk_migration_ready,
    )


def _endpoints(rows: Iterable[_Listener]) -> dict[str, Endpoint]:
    return {each.name: Endpoint(each.host, each.port) for each in rows}


def _protocols(rows: Iterable[_Listener]) -> dict[str, int]:
    return {each.name: each.security_protocol for each in rows}


def _ranges(rows: Iterable[_Range]) -> dict[str, tuple[int, int]]:
    return {each.name: (each.min_supported_version, each.max_supported_version) for each in rows}
