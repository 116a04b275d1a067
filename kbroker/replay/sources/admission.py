"""The streaming reader for a Spark that says where a query is and which trigger it has: Spark 4.2 and later.

With `availableNow` a query reads up to where topics ended when it began, in batches of `maxOffsetsPerTrigger`.  With
that trigger Spark 4.0 and 4.1 ask a Python source for its latest offset once, and read everything in one batch.
"""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kbroker.replay.sources.offset_json import Offsets
from kbroker.replay.sources.read_options import ReadOptions
from kbroker.replay.sources.stream_reader import StreamReader


class AdmittingStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """See the module."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._target: Offsets | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_target": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A limit that is not "all", wherever options limit a batch: only the trigger may say so (`takes_all`)."""
        least, most = self.options.min_offsets_per_trigger, self.options.max_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        if least is not None:
            return ReadMinRows(least)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = super().latest()

    def latest(self) -> Offsets:
        return super().latest() if self._target is None else self._target

    def takes_all(self, limit: object) -> bool:
        return isinstance(limit, ReadAllAvailable)
