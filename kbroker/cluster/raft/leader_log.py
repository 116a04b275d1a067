"""The metadata log of the node that leads the quorum, as the active controller writes to it.

    end = log.append(records)        in the same turn in which they were decided
    await log.committed(end)         a majority has them on disk, and this node's image has them

Records that are appended while others linger go into one batch with them, in order; those of one call never span
batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.metadata.metadata_record import MetadataRecord


class LeaderLog(Protocol):
    """See the module."""

    @property
    def epoch(self) -> int:
        """The epoch in which this node leads."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets, also behind records that still linger."""

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Append records as one atomic result; the offset behind the last.  NotControllerError."""

    async def committed(self, end_offset: int) -> None:
        """Return once all below this offset is committed and applied to `ClusterMetadata`.

        NotControllerError when this node ceased to lead before: what becomes of the records is not known."""

    def resign(self, reason: str) -> None:
        """Lead no more: the active controller has met an error of its own."""
