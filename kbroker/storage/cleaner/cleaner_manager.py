"""Which logs are compacted when: the pool of cleaners, their checkpoints, failures and statistics.

`run` is a periodic task (every `log.cleaner.backoff.ms`).  It looks at every compacted log in slices, rolls active
segments that `max.compaction.lag.ms` wants compacted, and lets up to `log.cleaner.threads` workers clean until no log
is due.  After each clean a worker takes the log that is then first in the queue (`cleaner_queue`).  A worker that finds
the queue empty looks at all logs again after the backoff, even while other workers are busy.  The decisions are taken
on the loop; threads do the byte work (`cleaner`).

`cleaner-offset-checkpoint` in each log directory has the first dirty offset of each partition.  It is written after
each clean, off the loop.  An offset in it that cannot be true is put right (`cleaner_plan.first_dirty`).

A log that fails to clean is tried again after a time that doubles from `log.cleaner.backoff.ms` to a quarter of an
hour; meanwhile it is counted in `uncleanable`, with the reason (Kafka leaves it alone until a restart).

All of it belongs to the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from kbroker._fast.base.slices import Slices
from kbroker.backoff import ExponentialBackoff
from kbroker.clock import Clock
from kbroker.config import BrokerConfig
from kbroker.host.scheduling import CLEANER_SLICE_NS, ask_for_short_slices
from kbroker.outage import Outages
from kbroker.storage.cleaner.cleaner import Cleaner, CleaningAbortedError, CleanSummary, Ticket
from kbroker.storage.cleaner.cleaner_plan import NO_LAG_LIMIT, Candidate, assess
from kbroker.storage.cleaner.cleaner_queue import DueLogs
from kbroker.storage.cleaner.cleaner_settings import CleanerSettings, check_reconfiguration
from kbroker.storage.cleaner.cleaner_snapshot import plan_clean, shape_of
from kbroker.storage.cleaner.cleaner_state import CleaningStates, Event, Phase
from kbroker.storage.cleaner.segment_swap import SegmentsChangedError, finish_swap
from kbroker.storage.files.checkpoints import CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.log_dir_failure import LogDirFailureChannel
from kbroker.storage.files.throttle import Throttle
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import Offset, TopicPartition

logger = logging.getLogger("kbroker.cleaner")

WORKER = "worker"
LONGEST_BACKOFF_MS = 900_000
# Threads are started on demand.  `log.cleaner.threads` bounds those that clean; one more writes checkpoints.
MOST_THREADS = 1 << 16


class CleaningFailure(NamedTuple):
    """A partition whose last clean failed.  `retry_at` is on the monotonic clock."""

    attempts: int
    reason: str
    since_ms: int
    retry_at: float


class CleanerTotals(NamedTuple):
    """What was done since the start."""

    cleans: int = 0
    failures: int = 0
    aborts: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless_count: int = 0
    seconds: float = 0.0


class LastClean(NamedTuple):
    """How a partition's last clean went."""

    at_ms: int
    seconds: float
    map_use: float
    summary: CleanSummary


class CleanerManager:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: Mapping[TopicPartition, UnifiedLog],
        clock: Clock,
        files: FileSystem,
        failures: LogDirFailureChannel | None = None,
        slices: Slices | None = None,
    ) -> None:
        self._failures = failures or LogDirFailureChannel(files)
        self._slices = slices or Slices()
        self.settings = CleanerSettings.of(config)
        self.states = CleaningStates()
        self.uncleanable: dict[TopicPartition, CleaningFailure] = {}
        self.last_cleans: dict[TopicPartition, LastClean] = {}
        self.totals = CleanerTotals()
        self.throttle = Throttle(self.settings.max_bytes_per_second)
        self._logs = logs
        self._clock = clock
        self._files = files
        self.found: dict[TopicPartition, Candidate] = {}
        """How dirty each compacted log was when it was last looked at."""
        self._checkpoints: dict[str, OffsetCheckpoint] = {}
        self._offsets: dict[str, dict[TopicPartition, Offset]] = {}
        self._unwritten: set[str] = set()
        self._outages = Outages(logger, logging.ERROR, clock.monotonic)
        self._writing = asyncio.Lock()
        self._tickets: dict[TopicPartition, Ticket] = {}
        self._waiting = DueLogs()
        self._next_survey = 0.0
        self.dead_count = 0
        """Workers that an error ended, outside a clean; others take their places at the next turn or survey."""
        self._executor: ThreadPoolExecutor | None = None
        self._stopped = False
        self._warn_of_excess()

    # -- what others ask ----------------------------------------------------------------------------------------------

    def is_busy(self, topic_partition: TopicPartition) -> bool:
        """Whether a clean is under way: retention waits then."""
        return self.states.of(topic_partition).phase in (Phase.IN_PROGRESS, Phase.ABORTED)

    def abort_and_pause(self, topic_partition: TopicPartition) -> None:
        """Keeps the cleaner away until `resume`; the caller may change the log at once."""
        self.states.apply(topic_partition, Event.PAUSE)
        ticket = self._tickets.get(topic_partition)
        if ticket is not None:
            ticket.aborted = True

    def resume(self, topic_partition: TopicPartition) -> None:
        """End one pause of a partition."""
        self.states.apply(topic_partition, Event.RESUME)

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is deleted or moved away: a clean of it stops, and its checkpoint goes."""
        ticket = self._tickets.get(topic_partition)
        if ticket is not None:
            ticket.aborted = True
        self.uncleanable.pop(topic_partition, None)
        self.last_cleans.pop(topic_partition, None)
        self.found.pop(topic_partition, None)
        self._waiting.withdraw(topic_partition)
        for parent, offsets in self._offsets.items():
            if offsets.pop(topic_partition, None) is not None:
                self._unwritten.add(parent)

    def handle_log_dir_failure(self, path: str) -> None:
        """A directory is offline: its checkpoint is not written any more, its logs have been forgotten."""
        self._offsets.pop(path, None)
        self._checkpoints.pop(path, None)
        self._unwritten.discard(path)

    def moved(self, topic_partition: TopicPartition, old_parent: str, new_parent: str) -> None:
        """The log lies in another log directory now, and so does its checkpoint."""
        offset = self._offsets_in(old_parent).pop(topic_partition, None)
        self._offsets_in(new_parent).pop(topic_partition, None)
        if offset is not None:
            self._offsets_in(new_parent)[topic_partition] = offset
        self._unwritten.update((old_parent, new_parent))

    def truncated(self, log: UnifiedLog) -> None:
        """After a truncation: nothing past the active segment's base counts as clean."""
        offsets = self._offsets_in(log.parent)
        base = log.local.segments.active.base_offset
        if offsets.get(log.topic_partition, -1) > base:
            offsets[log.topic_partition] = base
            self._unwritten.add(log.parent)

    def check(self, config: BrokerConfig) -> None:
        """Raises ValueError with Kafka's message when a running broker may not change to these settings."""
        check_reconfiguration(self.settings, CleanerSettings.of(config))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Takes new settings over: the throttle's at once, the others with the next clean of each worker."""
        new = CleanerSettings.of(config)
        if new != self.settings:
            self.settings = new
            self.throttle.bytes_per_second = new.max_bytes_per_second
            self._warn_of_excess()

    def _warn_of_excess(self) -> None:
        if self.settings.enabled and self.settings.excess:
            logger.warning("%s", self.settings.excess)

    def first_dirty_offset(self, log: UnifiedLog) -> Offset | None:
        """The checkpoint of a log."""
        return self._offsets_in(log.parent).get(log.topic_partition)

    def assess(self, log: UnifiedLog) -> Candidate:
        """How dirty a log is now."""
        return assess(shape_of(log), log.config, self.first_dirty_offset(log), self._clock.now_ms())

    @property
    def busy_count(self) -> int:
        """Cleans under way."""
        return len(self._tickets)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def _offsets_in(self, parent: str) -> dict[TopicPartition, Offset]:
        offsets = self._offsets.get(parent)
        if offsets is None:
            checkpoint = OffsetCheckpoint(self._files, f"{parent}/{CLEANER_OFFSET_CHECKPOINT}")
            self._checkpoints[parent] = checkpoint
            offsets = self._offsets[parent] = checkpoint.read()
        return offsets

    async def _write_checkpoints(self) -> None:
        """Writes changed checkpoints in a thread, one at a time, so that no older content replaces a newer one."""
        async with self._writing:
            for parent in list(self._unwritten):
                self._unwritten.discard(parent)
                if parent not in self._offsets:
                    continue
                offsets = {tp: at for tp, at in self._offsets[parent].items() if tp in self._logs}
                self._offsets[parent] = offsets
                try:
                    await self._in_thread(partial(self._checkpoints[parent].write, dict(offsets)))
                    self._outages.over(parent, "The cleaner's checkpoint in %s is written again", parent)
                except OSError as error:
                    if self._failures.report(parent, "writing a checkpoint", error):
                        continue
                    self._unwritten.add(parent)
                    self._outages.failed(parent, "Cannot write the cleaner's checkpoint in %s: %s", parent, error)

    def write_checkpoints(self) -> None:
        """The same, here and now: at a stop."""
        for parent in list(self._unwritten):
            offsets = {tp: at for tp, at in self._offsets[parent].items() if tp in self._logs}
            try:
                self._checkpoints[parent].write(offsets)
                self._unwritten.discard(parent)
            except OSError as error:
                logger.error("Cannot write the cleaner's checkpoint in %s: %s", parent, error)

    # -- the task -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """One turn: cleans until nothing is due."""
        if self._stopped or not self.settings.enabled or not self.settings.threads:
            return
        self._next_survey = 0.0
        workers: set[asyncio.Task[None]] = set()
        try:
            while not self._stopped:
                await self._employ(workers)
                if not workers:
                    break
                # With a timeout: meanwhile the settings may allow another worker, or another log may become due.
                seconds = self.settings.interval_ms / 1000
                done, workers = await asyncio.wait(workers, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                self._bury(done)
        except Exception:
            self.dead_count = self.settings.threads
            raise
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            for tp in list(self._tickets):
                self._let_go(tp)  # of one that was cancelled before it began
        if self._unwritten:
            await self._write_checkpoints()

    async def _employ(self, workers: set[asyncio.Task[None]]) -> None:
        """Adds workers, each with a log, while there are places for them and logs that are due."""
        if time.monotonic() >= self._next_survey:
            self.dead_count = 0
        while len(workers) < self.settings.threads - self.dead_count:
            if time.monotonic() >= self._next_survey:
                await self._survey()
            tp = self._waiting.take()
            if tp is None or self._stopped:
                return
            if self._due(tp) is not None:
                self.states.apply(tp, Event.GRAB)
                ticket = self._tickets[tp] = Ticket()
                workers.add(asyncio.get_running_loop().create_task(self._work(self._logs[tp], ticket)))

    def _bury(self, workers: set[asyncio.Task[None]]) -> None:
        """Counts the workers that an error has ended."""
        for worker in workers:
            error = None if worker.cancelled() else worker.exception()
            if error is not None:
                self.dead_count += 1
                text = "A cleaner's worker ended, another one takes its place later: %s"
                self._outages.failed(WORKER, text, error, error=error)
            elif not worker.cancelled():
                self._outages.over(WORKER, "A cleaner's worker has done its work again")

    async def _survey(self) -> None:
        """Finds the logs that are due."""
        waiting, pace = self._waiting, self._slices.pace()
        waiting.restart()
        for tp in list(self._logs):
            log = self._logs.get(tp)
            if log is None or not log.config.compact:
                continue
            await pace
            self._offer(tp)
        self._next_survey = time.monotonic() + self.settings.interval_ms / 1000

    def _offer(self, tp: TopicPartition) -> None:
        candidate = self._due(tp)
        if candidate is None:
            self._waiting.withdraw(tp)
        else:
            self._waiting.offer(tp, candidate.dirty_ratio, self._clock.monotonic())

    def _due(self, tp: TopicPartition) -> Candidate | None:
        """How dirty a log is, when it is to be cleaned now."""
        log = self._logs.get(tp)
        if log is None or not log.config.compact or self.states.of(tp).phase is not Phase.NONE:
            return None
        failure = self.uncleanable.get(tp)
        if failure is not None and self._clock.monotonic() < failure.retry_at:
            return None
        try:
            self._roll_overdue(log)
            candidate = self.found[tp] = self.assess(log)
        except Exception as error:
            # As for a failed clean: an error in one log must not keep the others from being compacted.
            self._failed(tp, error)
            return None
        if candidate.offsets.healed is not None:
            logger.warning("%s: %s; compacting from %d", tp, candidate.offsets.healed, log.local_log_start_offset)
            self._set_offset(log, candidate.offsets.first_dirty_offset)
        return candidate if candidate.is_due(log.config) else None

    def _roll_overdue(self, log: UnifiedLog) -> None:
        """Rolls the active segment, which is never compacted, once a record in it is older than
        max.compaction.lag.ms."""
        lag_ms = log.config.max_compaction_lag_ms
        active = log.local.segments.active
        if lag_ms >= NO_LAG_LIMIT or active.size == 0 or log.high_watermark < log.log_end_offset:
            return
        first = active.first_timestamp()
        if first > 0 and self._clock.now_ms() - first > lag_ms:
            logger.info("%s: rolling the active segment, as max.compaction.lag.ms has passed", log.topic_partition)
            log.roll()

    async def _work(self, log: UnifiedLog, ticket: Ticket) -> None:
        """One clean of a log that was grabbed.  The log is queued again when it is still due.

        It is still due when the clean filled its offset map or reached the limit of segments for one clean.
        """
        if await self._clean(log, ticket):
            self._offer(log.topic_partition)

    async def _clean(self, log: UnifiedLog, ticket: Ticket) -> bool:
        """One clean of one log; False when it did not get anywhere."""
        tp = log.topic_partition
        settings = self.settings
        worker = Cleaner(self._files, settings.map_bytes, settings.load_factor, settings.buffer_bytes)
        started = time.monotonic()
        try:
            summary = await self._carry_out(log, worker, ticket)
        except (CleaningAbortedError, SegmentsChangedError) as reason:
            self.totals = self.totals._replace(aborts=self.totals.aborts + 1)
            logger.info("Compaction of %s was given up: %s", tp, str(reason) or "the partition was needed")
            return False
        except Exception as error:
            # The error concerns this partition alone, and the others must go on; a thread that has to stop may
            # find its files gone.
            if not ticket.aborted:
                self._failed(tp, error)
            return False
        finally:
            worker.release()
            self._let_go(tp)
        self._succeeded(log, summary, time.monotonic() - started)
        await self._write_checkpoints()
        return True

    def _let_go(self, tp: TopicPartition) -> None:
        self._tickets.pop(tp).aborted = True
        self.states.apply(tp, Event.FINISH)

    async def _carry_out(self, log: UnifiedLog, worker: Cleaner, ticket: Ticket) -> CleanSummary:
        """Steps of a clean, those for a thread on a thread."""
        ticket.check()
        finish_swap(log)
        candidate = self.assess(log)
        plan = plan_clean(log, candidate.offsets, self._files, self._clock.now_ms())
        steps = worker.clean_log(log, plan, ticket, self.throttle)
        outcome: object = None
        try:
            job = next(steps)
            while True:
                try:
                    outcome = await self._in_thread(job)
                except (Exception, asyncio.CancelledError) as error:
                    ticket.aborted = True if isinstance(error, asyncio.CancelledError) else ticket.aborted
                    steps.throw(error)
                    raise
                job = steps.send(outcome)
        except StopIteration as done:
            summary: CleanSummary = done.value
            return summary

    def _in_thread(self, job: Callable[[], object]) -> asyncio.Future[object]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                MOST_THREADS, "log-cleaner", initializer=ask_for_short_slices, initargs=(CLEANER_SLICE_NS,)
            )
        return asyncio.get_running_loop().run_in_executor(self._executor, job)

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _set_offset(self, log: UnifiedLog, offset: Offset) -> None:
        self._offsets_in(log.parent)[log.topic_partition] = offset
        self._unwritten.add(log.parent)

    def _succeeded(self, log: UnifiedLog, summary: CleanSummary, seconds: float) -> None:
        tp = log.topic_partition
        self.uncleanable.pop(tp, None)
        if self._logs.get(tp) is log:
            self._set_offset(log, Offset(summary.end_offset))
        use = summary.map_entries / summary.map_capacity
        self.last_cleans[tp] = LastClean(self._clock.now_ms(), seconds, use, summary)
        totals = self.totals
        self.totals = totals._replace(
            cleans=totals.cleans + 1,
            bytes_read=totals.bytes_read + summary.bytes_read,
            bytes_written=totals.bytes_written + summary.bytes_written,
            records_read=totals.records_read + summary.records_read,
            records_kept=totals.records_kept + summary.records_kept,
            keyless_count=totals.keyless_count + summary.keyless_count,
            seconds=totals.seconds + seconds,
        )
        logger.info(
            "Compacted %s up to offset %d: kept %d of %d records, wrote %d bytes in %.3f s, offset map %.0f %% full",
            tp,
            summary.end_offset,
            summary.records_kept,
            summary.records_read,
            summary.bytes_written,
            seconds,
            use * 100,
        )
        if summary.keyless_count:
            logger.warning("%s: dropped %d records without a key", tp, summary.keyless_count)

    def _failed(self, tp: TopicPartition, error: BaseException) -> None:
        log = self._logs.get(tp)
        if log is None or self._failures.report(log.directory, f"compacting {tp}", error):
            return
        known = self.uncleanable.get(tp)
        attempts = known.attempts + 1 if known else 1
        wait_ms = int(ExponentialBackoff(max(self.settings.backoff_ms, 1), LONGEST_BACKOFF_MS).backoff(attempts - 1))
        self.uncleanable[tp] = CleaningFailure(
            attempts,
            f"{type(error).__name__}: {error}",
            known.since_ms if known else self._clock.now_ms(),
            self._clock.monotonic() + wait_ms / 1000,
        )
        self.totals = self.totals._replace(failures=self.totals.failures + 1)
        logger.error(
            "Compaction of %s failed (attempt %d), next attempt in %d s: %s", tp, attempts, wait_ms // 1000, error
        )

    # -- stop ---------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends every clean and waits for its thread; what is not in place yet is left out."""
        self._stopped = True
        for ticket in self._tickets.values():
            ticket.aborted = True
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None
        self.write_checkpoints()
