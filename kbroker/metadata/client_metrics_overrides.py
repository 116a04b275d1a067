"""What is set for subscriptions to client metrics, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ConfigResource

CLIENT_METRICS_RESOURCE = 16


class ClientMetricsOverrides:
    """Gives the same mapping while no setting changes, so that readers see by identity whether one has."""

    __slots__ = ("_cache", "_found", "_seen")

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._seen: Mapping[ConfigResource, Mapping[str, str]] | None = None
        self._found: Mapping[str, Mapping[str, str]] = {}

    def __call__(self) -> Mapping[str, Mapping[str, str]]:
        configs = self._cache.image.configs
        if configs is not self._seen:
            self._seen = configs
            found = {
                resource.name: values
                for resource, values in configs.items()
                if resource.kind == CLIENT_METRICS_RESOURCE
            }
            if found != self._found:
                self._found = found
        return self._found
