"""Settings of brokers at an active controller: whom they may be set for, and their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kbroker.errors import BrokerIdNotRegisteredError, InvalidRequestError
from kbroker.metadata.broker_settings import MIN_INSYNC
from kbroker.metadata.features import ELIGIBLE_LEADER_REPLICAS
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.cluster.requests import ConfigAlteration
    from kbroker.metadata.image import ClusterImage


def check_broker_name(image: ClusterImage, name: str) -> None:
    """Kafka's error where there is no such node; the empty name is all brokers.

    InvalidRequestError, BrokerIdNotRegisteredError."""
    if not name:
        return
    try:
        node_id = int(name)
    except ValueError:
        raise InvalidRequestError("Unable to parse broker name as a base 10 number.") from None
    if node_id not in image.brokers and node_id not in image.controllers:
        raise BrokerIdNotRegisteredError(f"No broker with id {node_id} found.")


def broker_config_records(
    image: ClusterImage, alteration: ConfigAlteration, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[MetadataRecord]:
    """A record for each setting that is named, also where its value stays: brokers read files anew for it."""
    resource = alteration.resource
    names = [*dict.fromkeys(edit.name for edit in alteration.edits)]
    names += [name for name in before if name not in after and name not in names]
    for name in names:
        if name in before or name in after:
            yield metadata_record(
                wire.ConfigRecord(
                    resource_type=resource.kind, resource_name=resource.name, name=name, value=after.get(name)
                )
            )
    is_other = before.get(MIN_INSYNC) != after.get(MIN_INSYNC)
    if is_other and image.features.level(ELIGIBLE_LEADER_REPLICAS):
        yield metadata_record(wire.ClearElrRecord(topic_name=""))
