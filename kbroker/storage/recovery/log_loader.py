"""Opening a partition's directory: Kafka's LogLoader, clean and unclean.

1. Leftovers: `.deleted` and `.cleaned` files go; a `.swap` segment (a replacement whose rename was interrupted)
   takes its place, unless its base offset is at or above the smallest `.cleaned` one, which marks an unfinished
   split.
2. Segments that a swap replaces (base offset within the swapped range) go; swaps get their names.
3. Each `.log` becomes a segment; an index without a log goes.
4. After an unclean stop everything from the recovery point on is read, checked and indexed again; at the first bytes
   that are not a valid batch the segment is cut and later segments are dropped.
5. Offsets and epochs are brought into line; producer state comes from the newest snapshot and the batches after it.

After a clean stop no segment is read but the end of the active one: directory listing, the last index entry, the
batches after it.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from kbroker._fast.records.record_batch import MAGIC_V2
from kbroker.config import LogConfig
from kbroker.storage.files.checkpoints import LEADER_EPOCH_CHECKPOINT
from kbroker.storage.files.filesystem import DirectoryEntry
from kbroker.storage.files.log_dir_failure import suppressing_no_space
from kbroker.storage.log import log_lookup
from kbroker.storage.log.leader_epoch_cache import LeaderEpochCache
from kbroker.storage.log.local_log import LocalLog, LogEnvironment, random_jitter, segment_config
from kbroker.storage.log.log_segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
    base_offset_of,
)
from kbroker.storage.log.log_segments import LogSegments
from kbroker.storage.log.partition_metadata import PARTITION_METADATA, PartitionMetadata
from kbroker.storage.log.producer_snapshot import SNAPSHOT_SUFFIX
from kbroker.storage.log.producer_state import ProducerState
from kbroker.storage.log.segment_damage import CorruptSegmentError
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.recovery.log_mending import lacks_epochs, mend_epochs, mend_segments
from kbroker.storage.recovery.log_recovery import LogRecovery, TooWideSegmentError
from kbroker.storage.recovery.recovery_progress import LogProgress, RecoveryProgress
from kbroker.storage.recovery.recovery_saver import RecoverySaver
from kbroker.storage.recovery.segment_split import split_segment
from kbroker.types import FIRST_OFFSET, NO_LEADER_EPOCH, NO_OFFSET, Offset, TopicPartition

logger = logging.getLogger("kbroker.storage")

OFFSET_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


class LoadRequest(NamedTuple):
    """A directory to open and what the checkpoints say of it.

    `is_tiered`: what lies below the first segment is in remote storage, from `log_start_offset` on.
    """

    directory: str
    topic_partition: TopicPartition
    config: LogConfig
    clean: bool
    recovery_point: Offset = FIRST_OFFSET
    log_start_offset: Offset = FIRST_OFFSET
    high_watermark: Offset = FIRST_OFFSET
    progress: RecoveryProgress | None = None
    saver: RecoverySaver | None = None
    is_tiered: bool = False


class _Kind(Enum):
    """What a file in a partition's directory is by its name."""

    LOG = auto()
    OFFSET_INDEX = auto()
    TIME_INDEX = auto()
    TXN_INDEX = auto()
    SNAPSHOT = auto()
    LEFTOVER = auto()
    METADATA = auto()
    EPOCHS = auto()
    FOREIGN = auto()
    OTHER = auto()


_KINDS = {
    LOG_SUFFIX: _Kind.LOG,
    INDEX_SUFFIX: _Kind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: _Kind.TIME_INDEX,
    TXN_INDEX_SUFFIX: _Kind.TXN_INDEX,
    SNAPSHOT_SUFFIX: _Kind.SNAPSHOT,
}
_SINGLE = {PARTITION_METADATA: _Kind.METADATA, LEADER_EPOCH_CHECKPOINT: _Kind.EPOCHS}


@lru_cache(maxsize=1 << 14)
def _classify(name: str) -> tuple[_Kind, Offset]:
    """Kind and base offset (-1 without one): most names are the same in thousands of directories."""
    if not name.endswith(OFFSET_SUFFIXES):
        return _SINGLE.get(name, _Kind.OTHER), NO_OFFSET
    if not _is_named_by_offset(name):
        return _Kind.FOREIGN, NO_OFFSET
    return _KINDS.get(name[20:], _Kind.LEFTOVER), base_offset_of(name)


class _Listing:
    """A directory's files by kind."""

    __slots__ = (
        "epochs",
        "foreign",
        "index_sizes",
        "indexes",
        "leftovers",
        "logs",
        "metadata",
        "snapshots",
        "time_index_sizes",
        "txn_indexes",
    )

    def __init__(self, entries: list[DirectoryEntry]) -> None:
        self.logs: dict[Offset, int] = {}
        self.index_sizes: dict[int, int] = {}
        self.time_index_sizes: dict[int, int] = {}
        self.txn_indexes: set[int] = set()
        self.snapshots: list[tuple[str, int]] = []
        self.leftovers: list[str] = []  # what an interrupted deletion, compaction or split left behind
        self.foreign: list[str] = []
        self.indexes: dict[str, Offset] = {}  # base offsets by the names of indexes of all kinds
        self.metadata = self.epochs = False
        for name, is_directory, size in entries:
            if is_directory:
                continue
            kind, base = _classify(name)
            if kind is _Kind.LOG:
                self.logs[base] = size
            elif kind is _Kind.OFFSET_INDEX:
                self.index_sizes[base] = size
                self.indexes[name] = base
            elif kind is _Kind.TIME_INDEX:
                self.time_index_sizes[base] = size
                self.indexes[name] = base
            elif kind is _Kind.TXN_INDEX:
                self.txn_indexes.add(base)
                self.indexes[name] = base
            elif kind is _Kind.SNAPSHOT:
                self.snapshots.append((name, size))
            elif kind is _Kind.METADATA:
                self.metadata = True
            elif kind is _Kind.EPOCHS:
                self.epochs = True
            elif kind is _Kind.LEFTOVER:
                self.leftovers.append(name)
            elif kind is _Kind.FOREIGN:
                self.foreign.append(name)


class PreparedLog(NamedTuple):
    """A directory in order (passes 1 to 3), with what the passes after those share.

    `progress` is of a log that has to be recovered.
    """

    request: LoadRequest
    environment: LogEnvironment
    epochs: LeaderEpochCache
    state: ProducerState
    segments: list[LogSegment]
    metadata: PartitionMetadata
    progress: LogProgress
    active_is_indexed: bool


def load_log(request: LoadRequest, environment: LogEnvironment) -> UnifiedLog:
    """Opens a partition's directory, bringing it into order first.  OSError when the disk fails."""
    return finish_log(prepare_log(request, environment))


def prepare_log(request: LoadRequest, environment: LogEnvironment, progress: LogProgress | None = None) -> PreparedLog:
    """Brings a directory into order and says what recovery will read; `finish_log` comes next."""
    listing = _list(request.directory, environment)
    removed: set[int] = set()
    if listing.leftovers:
        removed = {base_offset_of(name) for name in listing.leftovers}
        _resolve_leftovers(request.directory, listing, environment)
        listing = _list(request.directory, environment)
    _remove_orphans(request, listing, environment, removed)
    state = ProducerState(
        environment.files,
        request.topic_partition,
        request.directory,
        environment.producer_expiration_ms,
        environment.producers,
        verifies=environment.verifies,
    )
    for name, size in listing.snapshots:
        state.note_snapshot_file(name, size)
    epochs = LeaderEpochCache(environment.files, request.directory)
    epochs_known = epochs.load(exists=listing.epochs)
    segments = _open_segments(request, listing, environment)
    _mend(request, listing, environment, segments, state)
    durable = [segment for segment in segments if request.clean or segment.base_offset < request.recovery_point]
    has_epochs = request.config.message_magic >= MAGIC_V2
    if not epochs_known or (has_epochs and epochs.earliest is None and lacks_epochs(durable, environment.files)):
        logger.warning("%s: finding leader epochs again in %d segments", epochs.path, len(durable))
        mend_epochs(epochs, durable, environment.files, Offset(1 << 62) if request.clean else request.recovery_point)
    metadata = PartitionMetadata(environment.files, request.directory, exists=listing.metadata)
    if progress is None:
        total = None if request.clean else request.progress
        progress = total.log(request.directory.rpartition("/")[0]) if total is not None else LogProgress()
    prepared = PreparedLog(
        request,
        environment,
        epochs,
        state,
        segments,
        metadata,
        progress,
        bool(segments) and listing.index_sizes.get(segments[-1].base_offset, 0) > 0,
    )
    if not request.clean and segments:
        _expect(prepared)
    return prepared


def finish_log(prepared: PreparedLog) -> UnifiedLog:
    """Passes 4 and 5.  OSError when the disk fails."""
    while True:
        try:
            log = _assemble(prepared, _open_local_log(prepared))
        except TooWideSegmentError as error:
            request, environment = prepared.request, prepared.environment
            logger.warning("%s: splitting %s", request.topic_partition, error)
            split_segment(error.segment, request.directory, environment)
            prepared = prepare_log(request, environment, prepared.progress)
        else:
            prepared.progress.finish()
            return log


def _expect(prepared: PreparedLog) -> None:
    """Sets the most that recovery will read: where it begins in its first segment is known only when it does."""
    start = _recovery_start(prepared)
    sizes = [segment.size for segment in prepared.segments[1:] if segment.base_offset > start]
    sizes.append(prepared.segments[-1 - len(sizes)].size)
    prepared.progress.expect(len(sizes), sum(sizes))


def _is_named_by_offset(name: str) -> bool:
    """Whether a file's name begins as those of segments and snapshots do: 20 digits that are an offset, and a dot."""
    digits = name[:20]
    return name[20:21] == "." and digits.isascii() and digits.isdigit() and int(digits) < 1 << 63


def _list(directory: str, environment: LogEnvironment) -> _Listing:
    """What lies in a partition's directory, without what has a segment's suffix and no offset before it."""
    listing = _Listing(environment.files.list_directory(directory))
    if listing.foreign:
        logger.warning("Ignoring files in %s that are not a log's: %s", directory, ", ".join(listing.foreign))
    return listing


def _resolve_leftovers(directory: str, listing: _Listing, environment: LogEnvironment) -> None:
    """Passes 1 and 2: what an interrupted deletion, compaction or split left behind."""
    files = environment.files
    names = listing.leftovers
    cleaned = [base_offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    first_cleaned = min(cleaned, default=None)
    swaps: dict[Offset, list[str]] = {}
    for name in names:
        if name.endswith(SWAP_SUFFIX):
            base = base_offset_of(name)
            if first_cleaned is not None and base >= first_cleaned:
                logger.info("Removing %s/%s: its replacement was not finished", directory, name)
                files.unlink(f"{directory}/{name}")
            else:
                swaps.setdefault(base, []).append(name)
    # After the other files: should a crash come here, the `.cleaned` files still mark those as unfinished.
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
            files.unlink(f"{directory}/{name}")
    whole = {
        base: parts for base, parts in swaps.items() if any(part.endswith(LOG_SUFFIX + SWAP_SUFFIX) for part in parts)
    }
    _install_swaps(directory, listing, swaps, whole, environment)


def _install_swaps(
    directory: str,
    listing: _Listing,
    swaps: dict[Offset, list[str]],
    whole: dict[Offset, list[str]],
    environment: LogEnvironment,
) -> None:
    files = environment.files
    end = -1
    for base in whole:
        segment_end = _end_of_swap(directory, base, environment)
        if segment_end is None:
            for part in swaps.pop(base):
                files.unlink(f"{directory}/{part}")
        else:
            end = max(end, segment_end)
    first = min((base for base in whole if base in swaps), default=0)
    replaced = {f"{base:020d}{LOG_SUFFIX}": base for base in listing.logs} | listing.indexes
    for name, base in replaced.items():
        if first <= base < end:
            files.unlink_if_exists(f"{directory}/{name}")
    if swaps:
        # Else a new segment might get its name and an old one keep it.
        files.fsync_directory(directory)
    for parts in swaps.values():
        for part in sorted(parts, key=lambda name: name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
            files.rename(f"{directory}/{part}", f"{directory}/{part.removesuffix(SWAP_SUFFIX)}")
    files.fsync_directory(directory)


def _end_of_swap(directory: str, base: Offset, environment: LogEnvironment) -> Offset | None:
    """The offset after a finished replacement; None when its bytes are not whole batches: the old segments stay."""
    size = _size_of(environment, f"{directory}/{base:020d}{LOG_SUFFIX}{SWAP_SUFFIX}")
    segment = LogSegment(
        environment.files,
        environment.open_files,
        directory,
        base,
        segment_config(LogConfig()),
        size=size,
        suffix=SWAP_SUFFIX,
    )
    try:
        return segment.measure()[0]
    except CorruptSegmentError as error:
        logger.warning("Removing a damaged replacement: %s", error)
        return None
    finally:
        segment.close_files()


def _size_of(environment: LogEnvironment, path: str) -> int:
    fd = environment.files.open(path, 0)
    try:
        return environment.files.size(fd)
    finally:
        environment.files.close(fd)


def _remove_orphans(request: LoadRequest, listing: _Listing, environment: LogEnvironment, removed: set[int]) -> None:
    """Removes index files whose log file is gone; they only show that there was one.

    The log file should be there, unless it was `removed`, or an interrupted recovery has dropped it as not durable.
    """
    directory = request.directory
    gone = sorted({base for base in listing.indexes.values() if base not in listing.logs})
    for base in gone:
        if base not in removed and (request.clean or base < request.recovery_point):
            following = min((each for each in listing.logs if each > base), default=None)
            reason = f"there are index files of segment {base} in {directory}, but no log file"
            environment.damages.missing(request.topic_partition, directory, base, following, reason)
    for name, base in listing.indexes.items():
        if base not in listing.logs:
            logger.warning("Removing %s/%s: there is no log file for it", directory, name)
            environment.files.unlink_if_exists(f"{directory}/{name}")


def _mend(
    request: LoadRequest,
    listing: _Listing,
    environment: LogEnvironment,
    segments: list[LogSegment],
    state: ProducerState,
) -> None:
    """Indexes that are missing or wrong.  Until they are whole the directory is no clean one."""
    rebuilding = request.progress.rebuilding if request.clean and request.progress is not None else None
    if rebuilding is not None:
        rebuilding.add(request.directory)
    mend_segments(
        request.topic_partition,
        segments,
        environment,
        state,
        listing.index_sizes,
        listing.time_index_sizes,
        None if request.clean else request.recovery_point,
    )
    if rebuilding is not None:
        rebuilding.discard(request.directory)


def _open_segments(request: LoadRequest, listing: _Listing, environment: LogEnvironment) -> list[LogSegment]:
    config = segment_config(request.config)
    now_ms = environment.clock.now_ms()
    return [
        LogSegment(
            environment.files,
            environment.open_files,
            request.directory,
            base,
            config,
            size=listing.logs[base],
            has_txn_index=base in listing.txn_indexes,
            created_ms=now_ms,
            roll_jitter_ms=random_jitter(request.config),
            failures=environment.failures,
        )
        for base in sorted(listing.logs)
    ]


def _open_local_log(opening: PreparedLog) -> LocalLog:
    """Pass 4: the segments that are good, and where the log ends."""
    request, environment, segments = opening.request, opening.environment, opening.segments
    tp, start = request.topic_partition, request.log_start_offset
    end = _clean_end(opening, segments)
    if end is None:
        segments, end = _recover(opening)
    if end < request.recovery_point:
        reason = f"the log ends at {end}, but everything up to {request.recovery_point} was made durable"
        environment.damages.missing(tp, request.directory, end, request.recovery_point, reason)
    if segments and end < start:
        logger.warning("%s: the log ends at %d, below its log start offset %d: starting empty there", tp, end, start)
        for segment in segments:
            segment.delete_files()
        segments = []
        opening.epochs.clear()
        opening.state.restart_at(start)
    if not segments:
        return LocalLog.empty(request.directory, tp, request.config, environment, start)
    assert end >= segments[-1].base_offset, f"{tp} ends at {end}, before its last segment {segments[-1]}"
    recovery_point = min(request.recovery_point, end)
    return LocalLog(request.directory, tp, request.config, environment, LogSegments(segments), recovery_point, end)


def _clean_end(opening: PreparedLog, segments: list[LogSegment]) -> Offset | None:
    """The log end by the active segment's last bytes; None when segments have to be recovered."""
    if not segments:
        return opening.request.log_start_offset
    if not opening.request.clean:
        return None
    active, tp = segments[-1], opening.request.topic_partition
    epoch = NO_LEADER_EPOCH
    try:
        if active.size == 0:
            end = active.base_offset
        else:
            end, epoch = active.end(is_indexed=opening.active_is_indexed)
    except CorruptSegmentError as error:
        logger.warning("%s: recovering in spite of a clean stop: %s", tp, error)
        return None
    if end < opening.request.recovery_point:
        # What indexes and snapshots say of records that are gone must not meet those that come in their place.
        logger.warning("%s: recovering in spite of a clean stop: the log ends at %d", tp, end)
        return None
    if epoch > opening.epochs.latest_epoch:
        logger.warning("%s is older than its log: finding leader epochs again", opening.epochs.path)
        mend_epochs(opening.epochs, segments, opening.environment.files, end)
    active.close_files()
    return end


def _recovery_start(opening: PreparedLog) -> Offset:
    """The offset from which the log is read: the recovery point, or the active segment's start after a clean stop."""
    request = opening.request
    return opening.segments[-1].base_offset if request.clean else request.recovery_point


def _recover(opening: PreparedLog) -> tuple[list[LogSegment], Offset]:
    """Reads what may not be durable and keeps the valid prefix: (segments, log end)."""
    request = opening.request
    if request.clean and request.progress is not None:
        request.progress.rebuilding.add(request.directory)
    scan = LogRecovery(
        opening.environment,
        request.topic_partition,
        opening.epochs,
        opening.state,
        opening.progress,
        request.saver,
        is_compacted=request.config.compact,
        durable_offset=request.recovery_point,
    )
    kept, end = scan.run(opening.segments, _recovery_start(opening), _local_start(request, opening.segments[0]))
    opening.state.remove_snapshots_after(end)
    if request.progress is not None:
        request.progress.rebuilding.discard(request.directory)
    return kept, end


def _local_start(request: LoadRequest, first: LogSegment) -> Offset:
    return max(request.log_start_offset, first.base_offset)


def _assemble(opening: PreparedLog, local: LocalLog) -> UnifiedLog:
    """Pass 5."""
    request, epochs, state, metadata = opening.request, opening.epochs, opening.state, opening.metadata
    start = request.log_start_offset if request.is_tiered else _local_start(request, local.segments.first)
    end = local.log_end_offset
    epochs.truncate_from_end(end)
    if epochs.earliest is not None:
        epochs.truncate_from_start(start)
    log = UnifiedLog(
        request.topic_partition, local, start, request.high_watermark, epochs, state, opening.environment, metadata
    )
    if len(state.snapshots) > 1:
        state.remove_strays(frozenset(segment.base_offset for segment in local.segments))
    if state.map_end_offset != end:
        log_lookup.rebuild_producer_state(log)
        if request.clean and not state.snapshots:
            with suppressing_no_space():
                state.take_snapshot()  # or each start would read the whole log for it
    state.on_high_watermark(log.high_watermark)
    log.check_invariants()
    return log
