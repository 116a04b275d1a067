"""What brokers and controllers register with: Kafka's checks in their order, and the records (KIP-631, KIP-919)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Protocol

from kbroker.cluster.controller.directories import knows_directories
from kbroker.errors import ErrorCode, KafkaError, UnsupportedVersionError
from kbroker.metadata.features import CONTROLLERS_FROM, KRAFT_VERSION, METADATA_VERSION, NO_LEVEL
from kbroker.metadata.image_records import CORDONED_FROM, DIRECTORIES_FROM, registration_version
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.schemas import wire
from kbroker.types import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from kbroker.metadata.image import BrokerImage, ClusterImage

RESERVED_DIRECTORIES = frozenset({MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY})


class _Range(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


def check_registration(
    image: ClusterImage,
    request: wire.BrokerRegistrationRequest,
    *,
    is_duplicate: bool,
    reserved: Collection[int] = (),
) -> None:
    """Kafka's error where a broker cannot be registered.

    `is_duplicate`: another life of the broker has a session.  `reserved`: ids that are those of controllers alone.
    """
    if request.cluster_id != image.cluster_id:
        raise KafkaError.of(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {image.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if request.broker_id < 0 or request.broker_id in reserved:
        raise _invalid(f"{request.broker_id} is no broker's id")
    if is_duplicate:
        raise KafkaError.of(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        raise _invalid("Controller does not support registering ZK brokers.")
    if knows_directories(image):
        _check_directories(image, request)
    names = {each.name for each in request.features}
    if METADATA_VERSION not in names:
        raise _invalid(f"Request features do not contain '{METADATA_VERSION}'")
    check_features(image, request.features, "broker")


def _check_directories(image: ClusterImage, request: wire.BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        raise _invalid("No directories specified in request")
    if RESERVED_DIRECTORIES.intersection(directories):
        raise _invalid("Reserved directory ID in request")
    if len(set(directories)) < len(directories):
        raise _invalid("Duplicate directory ID in request")
    for broker in image.brokers.values():
        taken = set(broker.log_dirs).intersection(directories)
        if taken and broker.node_id != request.broker_id:
            raise _invalid(f"Broker {broker.node_id} is already registered with directory {min(taken).hex()}")


def check_features(image: ClusterImage, features: Iterable[_Range], kind: str) -> None:
    """UnsupportedVersionError where a node does not have a feature at the level that the cluster has."""
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in features}
    for name in (*ranges, *(name for name in image.features.chosen if name not in ranges and name != KRAFT_VERSION)):
        low, high = ranges.get(name, (NO_LEVEL, NO_LEVEL))
        level = image.features.chosen.get(name, NO_LEVEL)
        if not low <= level <= high:
            raise UnsupportedVersionError(
                f"Unable to register because the {kind} does not support finalized version {level} of {name}. The "
                f"{kind} wants a version between {low} and {high}, inclusive."
            )


def registration_record(
    image: ClusterImage, request: wire.BrokerRegistrationRequest, epoch: int, known: BrokerImage | None
) -> MetadataRecord:
    """The record of a registration.  `known`: the broker as it is where the same incarnation registers again."""
    record = wire.RegisterBrokerRecord
    level = image.features.chosen.get(METADATA_VERSION, NO_LEVEL)
    made = record(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            record.BrokerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            record.BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
        rack=request.rack,
        fenced=known is None or known.is_fenced,
        in_controlled_shutdown=known is not None and known.in_controlled_shutdown,
    )
    if level >= DIRECTORIES_FROM:
        made.log_dirs = list(request.log_dirs)
    if level >= CORDONED_FROM and known is not None and known.cordoned_log_dirs is not None:
        made.cordoned_log_dirs = list(known.cordoned_log_dirs)
    return metadata_record(made, registration_version(level))


def controller_registration(image: ClusterImage, request: wire.ControllerRegistrationRequest) -> MetadataRecord:
    """The record of a controller's registration.  UnsupportedVersionError where it cannot be."""
    if image.features.chosen.get(METADATA_VERSION, NO_LEVEL) < CONTROLLERS_FROM:
        raise UnsupportedVersionError("The current MetadataVersion is too old to support controller registrations.")
    check_features(image, request.features, "controller")
    record = wire.RegisterControllerRecord
    return metadata_record(
        record(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=request.zk_migration_ready,
            end_points=[
                record.ControllerEndpoint(
                    name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for each in request.listeners
            ],
            features=[
                record.ControllerFeature(
                    name=each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in request.features
            ],
        )
    )


def _invalid(reason: str) -> KafkaError:
    return KafkaError.of(ErrorCode.INVALID_REGISTRATION, reason)
