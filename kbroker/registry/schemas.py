"""Decoders of a registry's schemas, remembered: the last MOST_SCHEMAS of them, and for a while what cannot be had."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.errors import again, bare
from kbroker.registry.client import Registry
from kbroker.registry.decoded import Decoder
from kbroker.registry.decoders import decoder_of
from kbroker.registry.errors import RegistryAwayError, SchemaError

if TYPE_CHECKING:
    from kbroker.registry.wire_format import SchemaName

MOST_SCHEMAS = 1000
FAILURE_SECONDS = 10.0


class Schemas:
    """Used by one thread at a time."""

    def __init__(self, registry: Registry, now: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._now = now
        self._decoders: OrderedDict[SchemaName, Decoder] = OrderedDict()
        self._failures: OrderedDict[SchemaName, tuple[float, SchemaError]] = OrderedDict()
        self._away: tuple[float, SchemaError] | None = None

    def decoder(self, name: SchemaName) -> Decoder:
        """Asks the registry for a schema that is new, which waits.  SchemaError."""
        found = self._decoders.get(name)
        if found is not None:
            self._decoders.move_to_end(name)
            return found
        failure = self._failures.get(name) or self._away
        if failure is not None and self._now() < failure[0]:
            raise again(failure[1])
        try:
            found = self._decoders[name] = decoder_of(self._registry.schema(name))
        except SchemaError as error:
            failure = self._now() + FAILURE_SECONDS, bare(error)
            if isinstance(error, RegistryAwayError):
                self._away = failure
            else:
                self._failures[name] = failure
                self._failures.move_to_end(name)
            raise
        finally:
            for kept in (self._decoders, self._failures):
                while len(kept) > MOST_SCHEMAS:
                    kept.popitem(last=False)
        self._failures.pop(name, None)
        return found
