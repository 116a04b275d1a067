"""The registry and the schema files that a broker's settings name; for one that names none nothing is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.registry.client import Registry, RegistryPlace
    from kbroker.registry.display import Display
    from kbroker.registry.known_ids import KnownIds

MOST_BYTES = 1 << 20
"""The largest key or value that the broker decodes for viewers: meanwhile it does nothing else."""


def schema_ids_of(config: BrokerConfig, clock: Clock) -> KnownIds | None:
    """What topics with `confluent.…schema.validation` ask; None where the settings name no registry for that."""
    place = _validating(config)
    if place is None:
        return None
    from kbroker.registry.client import Registry
    from kbroker.registry.known_ids import KnownIds

    return KnownIds(Registry(place).has, clock)


def registry_of(config: BrokerConfig) -> Registry | None:
    """The registry whose schemas are shown, and records are produced by; None where the settings name none."""
    place = _place(config, config.get("kbroker.schema.registry.url")) or _validating(config)
    if place is None:
        return None
    from kbroker.registry.client import Registry

    return Registry(place)


def display_of(config: BrokerConfig) -> Display | None:
    """What decodes records for viewers; None where the settings name neither a registry nor files."""
    from kbroker.registry.display import Display
    from kbroker.registry.schema_files import parse_files

    files = parse_files(config.get("kbroker.schema.files"))
    place = _place(config, config.get("kbroker.schema.registry.url")) or _validating(config)
    return Display(place, files, most_bytes=MOST_BYTES) if place is not None or files else None


def _validating(config: BrokerConfig) -> RegistryPlace | None:
    return _place(config, config.get("confluent.schema.registry.url"))


def _place(config: BrokerConfig, urls: Sequence[str]) -> RegistryPlace | None:
    if not urls:
        return None
    from kbroker.registry.client import RegistryPlace

    user_info = config.get("kbroker.schema.registry.user.info") or ""
    ca_file = config.get("kbroker.schema.registry.ca.file") or ""
    return RegistryPlace(tuple(urls), user_info, ca_file)
