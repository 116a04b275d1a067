"""The byte work of one clean, which a thread does without the GIL, and the order in which its steps happen.

    build the offset map over the dirty part             thread
    for each group of neighbouring segments:
        make empty `.cleaned` files                      loop
        write into them what stays, fsync                thread
        .cleaned -> .swap -> live (segment_swap)         loop
        fsync the directory after each of these          thread

`clean_log` is a generator: it yields what a thread is to run and is resumed with the result; what it does between two
yields runs on the loop.  A thread gets paths, descriptors and the plan, which is immutable; the loop owns the state of
the partition, and swaps segments in only while the log still has the segments that were read.

A clean goes as far as its offset map reaches; the offset after that is the next first dirty one.  Memory is the map,
one read and one write buffer, which grow for a batch larger than they are (`cleaner_reader`) and shrink again after the
clean.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kbroker._fast.clean.clean import END, FULL, OVERFLOW, SPECIAL, Compaction
from kbroker._fast.clean.clean_files import clean_range, index_range
from kbroker._fast.clean.offset_map import OffsetMap
from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchInfo, read_header, seal
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.records.batch import STORED_LIMIT_BYTES
from kbroker.records.codec_libraries import native_codecs_loaded
from kbroker.records.compression import compress, decompress
from kbroker.storage.cleaner import cleaner_legacy
from kbroker.storage.cleaner.cleaner_plan import CleanPlan, Source, group_segments
from kbroker.storage.cleaner.cleaner_reader import Reader
from kbroker.storage.cleaner.cleaner_transactions import CleanedTransactions
from kbroker.storage.cleaner.segment_swap import (
    CleanedSegment,
    discard_cleaned,
    open_cleaned,
    remove_leftovers,
    swap_in,
)
from kbroker.storage.files.filesystem import FileSystem

if TYPE_CHECKING:
    from kbroker.storage.log.unified_log import UnifiedLog

Job = Callable[[], object]

# The bytes between two checks of the ticket and the throttle: some 20 ms of work.
MOST_RANGE_BYTES = 8 << 20
RANGES_PER_SECOND = 20


class CleaningAbortedError(Exception):
    """Another task needs the partition, or the broker stops."""


class Ticket:
    """How the loop tells a thread to stop."""

    __slots__ = ("aborted",)

    def __init__(self) -> None:
        self.aborted = False

    def check(self) -> None:
        """CleaningAbortedError once the cleaning has to end."""
        if self.aborted:
            raise CleaningAbortedError


class Spender(Protocol):
    """The throttle that all cleaners share."""

    bytes_per_second: float

    def spend(self, size_bytes: int, check: Callable[[], None]) -> None:
        """Accounts for bytes read or written, and waits as long as there were too many."""


class CleanSummary(NamedTuple):
    """What a clean did.  `end_offset`: everything below it is clean now."""

    end_offset: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keyless_count: int
    map_entries: int
    map_capacity: int


class WriteCursor(NamedTuple):
    """Where pass two is: a segment of its group, and a position in it."""

    source: int
    position: int


class Cleaner:
    """The buffers and the offset map of one worker.  One clean at a time."""

    def __init__(self, files: FileSystem, map_bytes: int, load_factor: float, buffer_bytes: int) -> None:
        self._files = files
        self._buffer_bytes = max(buffer_bytes, 1024)
        self._buffer = bytearray()
        self._compaction = Compaction(OffsetMap(map_bytes, load_factor))
        # C reads the segment files by itself, unless a test has put another FileSystem in front of them.
        self._direct = type(files) is FileSystem
        self._throttle: Spender
        self._ticket = Ticket()
        self._bytes_read = 0
        self._bytes_written = 0

    def release(self) -> None:
        """Gives the memory back until the next clean."""
        self._compaction.release()
        self._buffer = bytearray()

    # -- the steps ----------------------------------------------------------------------------------------------------

    def clean_log(
        self, log: UnifiedLog, plan: CleanPlan, ticket: Ticket, throttle: Spender
    ) -> Generator[Job, object, CleanSummary]:
        """One clean.  After CleaningAbortedError, OSError or ValueError the segments that were swapped in before
        stay."""
        self._ticket = ticket
        self._throttle = throttle
        self._bytes_read = self._bytes_written = 0
        self._buffer = bytearray(self._buffer_bytes)
        remove_leftovers(self._files, plan.directory)
        yield partial(self._build_map, plan)
        end_offset = self._compaction.offsets.latest_offset + 1
        sources = [source for source in plan.sources if source.base_offset < end_offset]
        transactions = CleanedTransactions(plan.aborted)
        config = plan.config
        for group in group_segments(sources, config.segment_bytes, config.segment_index_bytes):
            yield from self._clean_group(log, plan, group, transactions)
        compaction = self._compaction
        return CleanSummary(
            end_offset,
            self._bytes_read,
            self._bytes_written,
            compaction.records_read,
            compaction.records_kept,
            compaction.keyless_count,
            len(compaction.offsets),
            compaction.offsets.capacity,
        )

    def _clean_group(
        self, log: UnifiedLog, plan: CleanPlan, group: Sequence[Source], transactions: CleanedTransactions
    ) -> Generator[Job, Any, None]:
        written: list[CleanedSegment] = []
        base_offset = group[0].base_offset
        cursor: WriteCursor | None = WriteCursor(0, 0)
        try:
            while cursor is not None:
                self._ticket.check()
                output = open_cleaned(self._files, plan.directory, base_offset)
                written.append(output)
                cursor, base_offset = yield partial(self._write_segment, plan, group, cursor, output, transactions)
            self._ticket.check()
            yield from swap_in(log, group, written, self._ticket.check)
        except BaseException:
            discard_cleaned(self._files, written)
            raise

    # -- pass one -----------------------------------------------------------------------------------------------------

    def _build_map(self, plan: CleanPlan) -> None:
        """Thread: the keys of the dirty part, as many as the map takes."""
        native_codecs_loaded()
        compaction = self._compaction
        offsets = compaction.offsets
        start = plan.first_dirty_offset
        offsets.clear()
        offsets.latest_offset = start - 1
        compaction.start_clean(plan.now_ms, plan.config.delete_retention_ms, plan.end_offset, plan.last_data_offsets)
        transactions = CleanedTransactions(entry for entry in plan.aborted if entry.last_offset >= start)
        position = plan.first_dirty_position
        for source in plan.sources:
            if source.end_offset <= start:
                continue
            reader = Reader(self._files, source, self._buffer, position, plan.config.max_message_bytes)
            if not self._index_segment(reader, start, transactions):
                return
            # Offsets that compaction has left without a batch count as indexed.
            offsets.latest_offset = max(offsets.latest_offset, source.end_offset - 1)
            position = 0

    def _index_segment(self, reader: Reader, start: int, transactions: CleanedTransactions) -> bool:
        """False when the map is full."""
        compaction = self._compaction
        # A batch that only Python can index is often followed by others: the next buffer is not offered to C first.
        special = not self._direct
        while reader.left:
            if not special:
                stop = self._index_range(reader, start)
                if stop == FULL:
                    return False
                if stop == END:
                    continue
            special = not self._direct
            filled = reader.fill()
            at = 0
            while True:
                at, stop = compaction.index(reader.buffer, at, filled, start)
                if stop != SPECIAL:
                    break
                special = True
                info = read_stored_header(reader.buffer, at, filled)
                if not self._index_special(reader.buffer, info, start, transactions):
                    return False
                at += info.size_in_bytes
            if stop == FULL:
                return False
            self._go_on(reader, at, filled)
        return True

    def _index_range(self, reader: Reader, start: int) -> int:
        """Indexes the keys of the next megabytes in C; returns why it stopped, SPECIAL where C could not begin."""
        at, stop = index_range(
            self._compaction, reader.fd, reader.position, reader.source.size, reader.buffer, start, self._range_bytes
        )
        if stop == FULL:
            return stop
        return stop if self._went_on(reader, at) else SPECIAL

    def _index_special(self, buffer: bytearray, info: BatchInfo, start: int, transactions: CleanedTransactions) -> bool:
        with memoryview(buffer) as view:
            if info.is_control:
                transactions.is_marker_done(view, info)
            elif not transactions.is_aborted(info) and info.last_offset >= start:
                payload: memoryview | bytes
                if info.magic < MAGIC_V2:
                    payload, info = cleaner_legacy.as_batch(cleaner_legacy.records_of(view, info))
                else:
                    payload = _records_of(view, info)
                if not self._compaction.index_records(payload, info, start):
                    return False
        if info.last_offset >= start:
            offsets = self._compaction.offsets
            offsets.latest_offset = max(offsets.latest_offset, info.last_offset)
        return True

    @property
    def _range_bytes(self) -> int:
        """The bytes that C handles per call: fewer under a throttle, so that each wait is short."""
        allowed = max(self._throttle.bytes_per_second / RANGES_PER_SECOND, len(self._buffer))
        return int(min(allowed, MOST_RANGE_BYTES))

    def _went_on(self, reader: Reader, position: int) -> bool:
        """Advances the reader to `position`, and accounts for the bytes before it."""
        done = position - reader.position
        reader.position = position
        self._bytes_read += done
        self._ticket.check()
        self._spend(done)
        return done > 0

    def _go_on(self, reader: Reader, done: int, filled: int) -> None:
        """Advances over `done` bytes of batches in the buffer; 0: enlarges the buffer for a larger batch."""
        if done == 0:
            reader.make_room(filled)
        self._went_on(reader, reader.position + done)

    def _spend(self, size_bytes: int) -> None:
        self._throttle.spend(size_bytes, self._ticket.check)

    # -- pass two -----------------------------------------------------------------------------------------------------

    def _write_segment(
        self,
        plan: CleanPlan,
        group: Sequence[Source],
        cursor: WriteCursor,
        output: CleanedSegment,
        transactions: CleanedTransactions,
    ) -> tuple[WriteCursor | None, int]:
        """On a thread: writes the records of a group that stay, from `cursor` on.  If they do not fit one segment,
        returns the cursor and the base offset for the next one."""
        compaction = self._compaction
        compaction.start_segment(output.base_offset, plan.config.index_interval_bytes, plan.config.segment_index_bytes)
        onward: tuple[WriteCursor | None, int] = (None, 0)
        for at in range(cursor.source, len(group)):
            position = cursor.position if at == cursor.source else 0
            reader = Reader(self._files, group[at], self._buffer, position, plan.config.max_message_bytes)
            next_base = self._clean_segment(plan, reader, output, transactions)
            if next_base is not None:
                onward = (WriteCursor(at, reader.position), next_base)
                break
        self._flush(output)
        offset_index, time_index = compaction.finish_segment()
        kept, transactions.kept = transactions.kept, []
        output.finish(self._files, offset_index, time_index, kept)
        self._files.set_modified_ms(output.log_path, group[-1].modified_ms)
        return onward

    def _clean_segment(
        self, plan: CleanPlan, reader: Reader, output: CleanedSegment, transactions: CleanedTransactions
    ) -> int | None:
        """The base offset of the batch that does not fit the output, at `reader.position`; None at the end."""
        compaction = self._compaction
        special = not self._direct
        while reader.left:
            if not special and self._clean_range(reader, output) == END:
                continue
            special = not self._direct
            filled = reader.fill()
            at = 0
            overflow = False
            while True:
                at, stop = compaction.clean(reader.buffer, at, filled)
                if stop != SPECIAL:
                    overflow = stop == OVERFLOW
                    break
                special = True
                info = read_stored_header(reader.buffer, at, filled)
                fits = compaction.fits_segment(info)
                if fits and info.magic < MAGIC_V2:
                    fits = self._clean_legacy(plan, reader, info)
                elif fits:
                    self._clean_special(plan, reader.buffer, info, transactions)
                if not fits:
                    overflow = True
                    break
                at += info.size_in_bytes
            if overflow:
                reader.position += at
                return _first_offset(reader.buffer, at, filled)
            if compaction.pending_bytes >= self._buffer_bytes:
                self._flush(output)
            self._go_on(reader, at, filled)
        return None

    def _clean_range(self, reader: Reader, output: CleanedSegment) -> int:
        """Compacts the next megabytes in C; returns why it stopped, SPECIAL where C could not begin."""
        at, stop, size = clean_range(
            self._compaction, reader.fd, reader.position, reader.source.size, reader.buffer, self._range_bytes,
            output.fd, output.size,
        )  # fmt: skip
        written, output.size = size - output.size, size
        self._bytes_written += written
        self._spend(written)
        return stop if self._went_on(reader, at) else SPECIAL

    def _clean_special(
        self, plan: CleanPlan, buffer: bytearray, info: BatchInfo, transactions: CleanedTransactions
    ) -> None:
        """A transactional or control batch, or one of a codec that C does not read."""
        compaction = self._compaction
        with memoryview(buffer) as view:
            drop = stamp = keep_empty = False
            if info.is_control:
                done = transactions.is_marker_done(view, info)
                drop = done and info.has_delete_horizon and info.base_timestamp <= plan.now_ms
                stamp = done and not info.has_delete_horizon
                # Keep the last trace of a producer that wrote nothing but this marker in its epoch.
                keep_empty = plan.marker_epochs.get(info.producer_id) == info.producer_epoch
            else:
                drop = transactions.is_aborted(info)
            payload = _records_of(view, info)
            changed = compaction.clean_records(
                payload, info, drop_all=drop, keep_all=info.is_control, stamp=stamp, keep_empty=keep_empty
            )
            if isinstance(payload, memoryview):
                payload.release()
            if changed is None:
                with view[info.position : info.position + info.size_in_bytes] as unchanged:
                    compaction.add(unchanged, info)
        if changed:
            batch = _recompressed(changed, info.compression)
            compaction.add(batch, read_header(batch))

    def _clean_legacy(self, plan: CleanPlan, reader: Reader, info: BatchInfo) -> bool:
        """A message, or a wrapper of messages, of an old format.  False when what stays does not fit the segment."""
        compaction = self._compaction
        with memoryview(reader.buffer) as view:
            records = cleaner_legacy.records_of(view, info)
        payload, judged = cleaner_legacy.as_batch(records, cleaner_legacy.tombstone_horizon(plan, reader.source))
        changed = compaction.clean_records(
            payload, judged, drop_all=False, keep_all=False, stamp=False, keep_empty=False
        )
        batch = cleaner_legacy.as_record_batch(records, info, changed)
        if batch is None:
            return True
        made = read_header(batch)
        if not compaction.fits_segment(made):
            return False
        compaction.add(batch, made)
        return True

    def _flush(self, output: CleanedSegment) -> None:
        view = self._compaction.written()
        if len(view):
            output.append(self._files, view)
            self._bytes_written += len(view)
            self._spend(len(view))
        self._compaction.taken()


def _first_offset(buffer: bytearray, position: int, end: int) -> int:
    info = read_stored_header(buffer, position, end)
    if info.magic >= MAGIC_V2 or not info.compression:
        return info.base_offset
    with memoryview(buffer) as view:
        return cleaner_legacy.records_of(view, info)[0].offset


def _records_of(view: memoryview, info: BatchInfo) -> memoryview | bytes:
    """A batch's records, decompressed."""
    body = view[info.position + BATCH_OVERHEAD : info.position + info.size_in_bytes]
    if not info.compression or not info.records_count:
        return body
    with body:
        return decompress(info.compression, body, STORED_LIMIT_BYTES)


def _recompressed(batch: bytes, codec: int) -> bytes | bytearray:
    """A batch with plain records as one with compressed ones; a bare header has none."""
    if not codec or len(batch) == BATCH_OVERHEAD:
        return batch
    packed = bytearray(batch[:BATCH_OVERHEAD])
    packed += compress(codec, memoryview(batch)[BATCH_OVERHEAD:])
    seal(packed, codec)
    return packed
