"""What an executor does with a range of offsets: fetch, decode, give Arrow batches.

Memory is bounded for any range: two fetches (`kbroker.client.fetcher`), one decompressed batch and the
Arrow batch being filled (`kbroker.replay.columns`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker._fast.records.batch_info import BatchError
from kbroker.client.cluster import Cluster
from kbroker.client.errors import ClientError, OffsetGoneError
from kbroker.client.fetcher import Fetcher
from kbroker.replay.columns import ColumnBatches
from kbroker.replay.sources.offset_ranges import Range
from kbroker.replay.sources.read_options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

HOW_TO_GO_ON = (
    "Some data may have been lost because they are not available any more: aged out by retention, deleted, or the "
    "topic was deleted before all of it was read. To go on with what is there, set the option failOnDataLoss to false"
)


class DataLossError(ClientError):
    """Records that a query should have read are gone."""


class CorruptRecordsError(ClientError):
    """Records that are damaged, in a format that is not read, or too large."""


def report_loss(options: ReadOptions, text: str) -> None:
    """DataLossError, or with failOnDataLoss=false a warning in the log."""
    if options.fail_on_data_loss:
        raise DataLossError(f"{text}. {HOW_TO_GO_ON}")
    logger.warning("%s; failOnDataLoss is false, so reading goes on with what is there", text)


def read_range(piece: Range, columns: tuple[str, ...], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The range's records, in order, as Arrow batches with these columns."""
    # The address has proved right when the query was planned: a broker that does not answer now may be restarting.
    client = replace(options.client, first_patience_s=options.fetch.poll_timeout_s)
    with Cluster(options.bootstrap, client) as cluster:
        fetcher = Fetcher(cluster, piece.topic, piece.partition, options.fetch)
        start = piece.start
        while start < piece.stop:
            found = ColumnBatches(piece.topic, piece.partition, start, piece.stop, columns=columns)
            try:
                yield from _read(fetcher, found, piece)
                start = piece.stop
            except OffsetGoneError as gone:
                report_loss(options, str(gone))
                yield from found.flush()
                start = piece.stop if gone.log_start_offset <= found.next_offset else gone.log_start_offset


def _read(fetcher: Fetcher, found: ColumnBatches, piece: Range) -> Iterator[pa.RecordBatch]:
    try:
        for fetched in fetcher.frames(found.next_offset, piece.stop):
            found.reader.set_aborted(fetched.aborted)
            yield from found.feed(fetched.records)
    except BatchError as error:
        raise CorruptRecordsError(f"reading {piece.topic}-{piece.partition}: {error}") from error
    yield from found.flush()
