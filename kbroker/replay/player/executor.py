"""What one task of a replay does: get ready, wait for all others, send each row at its time, count.

`Play(job)` is the function of a `mapInArrow` in barrier mode: it takes prepared rows (`plan.PREPARED`) and gives rows
of OUTCOME_SCHEMA, every few seconds, so that memory does not grow with the length of the replay.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyspark import BarrierTaskContext

from kbroker.replay.player.channel import Reporter
from kbroker.replay.player.column_sender import ColumnSender, open_sender
from kbroker.replay.player.operations import Headers, Member, Sender, Totals
from kbroker.replay.player.outcome import LASTED, NOT_SENT, STARTED, Cells
from kbroker.replay.player.plan import ID_HEADER, PREPARED
from kbroker.replay.player.settings import Job, ReplayError
from kbroker.replay.player.spool import Spool
from kbroker.replay.trace_schema import PRODUCE
from kbroker.types import JsonObject

EMIT_SECONDS = 2.0
CHUNK_ROWS = 256
"""Rows that become Python objects in one go, where they do: few, so that no record has to wait for it."""

SERVE_EVERY = 32
_OPERATION = ("due_us", "source", "sequence", "topic", "kind", "group")
NEW_OBJECTS = 200_000
"""How many new objects make Python look for cycles."""
BATCHES_AHEAD = 2


class Play:
    """See the module's text.  An instance is what Spark sends to executors."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = BarrierTaskContext.get()
        executor, totals = context.partitionId(), Totals()
        reporter = Reporter(self.job.channel, self.job.token, executor, totals.counts)
        try:
            if context.attemptNumber() or reporter.repeated:
                raise ReplayError(
                    "an executor was lost in the middle of the replay, which is not repeated: see its log"
                )
            # All rows are read before the start, so that Spark is idle while records are sent.
            rows = Spool(batches)
            player = Player(self.job, executor, totals, Ahead(rows.batches()), reporter)
            # A first row, so that Spark has opened its files before records are due.
            yield opening(executor)
            # All executors read their clocks at the barrier and start by the latest, so that none starts before
            # another.
            clocks = [float(text) for text in context.allGather(repr(time.time()))]
            player.begin(max(clocks) + self.job.lead_s)
            with rare_collections():
                yield from player.outcomes()
        finally:
            reporter.close()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Makes Python's garbage collector run rarely: it would traverse the records in flight, which form no cycles.

    With its default thresholds it takes a fifth of the time, and pauses of milliseconds when many records wait.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def opening(executor: int) -> pa.RecordBatch:
    """A row that counts nothing."""
    cells = Cells(executor)
    cells.at(0, "", "")
    batch = cells.take()
    assert batch is not None
    return batch


class Player:
    """The rows of one task on their way to the broker."""

    def __init__(self, job: Job, executor: int, totals: Totals, rows: Ahead, reporter: Reporter) -> None:
        self.executor, self.totals, self.reporter = executor, totals, reporter
        self._job, self._rows = job, rows
        self._cells = Cells(executor)
        self._sender = open_sender(job, executor, self._cells, self.totals)
        self._members = {group: Member(job, group, executor, self.totals) for group in job.subscriptions}
        rows.wait_first()

    def begin(self, wall: float) -> None:
        """Fixes the time at which the trace starts, as a wall clock's."""
        self._start = time.monotonic() + (wall - time.time())
        self._sender.begin(self._start)
        for member in self._members.values():
            member.start = self._start
        self._note_start(wall)

    def outcomes(self) -> Iterator[pa.RecordBatch]:
        """Plays the rows; gives batches of outcomes as they come."""
        emit = time.monotonic() + EMIT_SECONDS
        for _ in self._play():
            if time.monotonic() > emit:
                yield from self._take()
                emit = time.monotonic() + EMIT_SECONDS
        self._sender.finish(self._stopped, self._job.stop_patience_s)
        for member in self._members.values():
            member.finish(stopped=self._stopped())
        self._cells.at(0, "", "").events[LASTED] = int((time.monotonic() - self._start) * 1e6)
        yield from self._take()

    def _stopped(self) -> bool:
        return self.reporter.stopped

    def _take(self) -> Iterator[pa.RecordBatch]:
        if isinstance(self._sender, ColumnSender):
            self._sender.collect()
        counting: list[Cells | Member] = [self._cells, *self._members.values()]
        for one in counting:
            batch = one.take()
            if batch is not None:
                yield batch

    def _note_start(self, wall: float) -> None:
        # One row tells when the replay began, in microseconds since 1970, for all that is plotted beside it.
        self._cells.at(0, "", "").events[STARTED] = int(wall * 1e6) if self.executor == 0 else 0

    def _play(self) -> Iterator[None]:
        """Plays all rows; comes back every now and then."""
        if isinstance(self._sender, ColumnSender):
            for batch in self._rows.batches():
                yield from self._play_columns(batch, self._sender)
        else:
            for batch in self._rows.batches():
                for first in range(0, batch.num_rows, CHUNK_ROWS):
                    self._play_rows(batch.slice(first, CHUNK_ROWS), self._sender)
                    yield

    def _play_columns(self, batch: pa.RecordBatch, sender: ColumnSender) -> Iterator[None]:
        slot, row = sender.hold(batch), 0
        while row < batch.num_rows and not self.reporter.stopped:
            row, another = sender.play(slot, row)
            if another:
                (due_us, source, sequence, topic, kind, group), *_ = _rows(batch.slice(row, 1), _OPERATION)
                self._operate(self._start + due_us / 1e6, kind, source, sequence, topic, group)
                row += 1
            yield
        sender.release(slot)
        for due_us, source, sequence, topic, kind, _ in _rows(batch.slice(row), _OPERATION):
            self._skip(self._start + due_us / 1e6, kind, topic, source, sequence)

    def _play_rows(self, chunk: pa.RecordBatch, sender: Sender) -> None:
        start, stopped, reporter = self._start, self._stopped, self.reporter
        send, now = sender.send, time.monotonic
        for number, row in enumerate(_rows(chunk, PREPARED)):
            due_us, source, sequence, topic, partition, key, value, headers, kind, group, mark = row
            due = start + due_us / 1e6
            if reporter.stopped or (due > now() and not sender.wait_until(due, stopped)):
                self._skip(due, kind, topic, source, sequence)
            elif kind == PRODUCE:
                if not number % SERVE_EVERY:
                    sender.serve()
                send(due, source, sequence, topic, partition, key, value, _headers(headers, mark), stopped)
            else:
                self._operate(due, kind, source, sequence, topic, group)

    def _operate(self, due: float, kind: str, source: str, sequence: int, topic: str, group: str) -> None:
        self._members[group].put(due, kind, source, sequence, topic)
        self.totals.sent += 1

    def _skip(self, due: float, kind: str, topic: str, source: str, sequence: int) -> None:
        cell = self._cells.at(int(due - self._start), kind, topic)
        cell.unsent += 1
        if kind == PRODUCE:
            cell.exceptions.append((source, sequence, NOT_SENT))


def _rows(batch: pa.RecordBatch, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Rows as Python objects."""
    return zip(*(_values(batch.column(name)) for name in names), strict=True)


def _values(column: pa.Array) -> Iterable[object]:
    """A column's values; one without any costs nothing."""
    return repeat(None, len(column)) if column.null_count == len(column) else column.to_pylist()


def _headers(headers: list[JsonObject] | None, mark: bytes | None) -> Headers:
    if not headers:
        return [(ID_HEADER, mark)] if mark is not None else []
    own: Headers = [(one["key"], one["value"]) for one in headers]
    if mark is not None:
        own.append((ID_HEADER, mark))
    return own


class Ahead:
    """The rows of a task, read by a thread of its own, so that sending does not wait for a disk."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._queue: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(BATCHES_AHEAD)
        self._first: pa.RecordBatch | BaseException | None = None
        threading.Thread(target=self._read, args=(batches,), name="replay-rows", daemon=True).start()

    def wait_first(self) -> None:
        """Returns when there are rows, or none at all."""
        self._first = self._queue.get()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches in order.  Raises what reading them raised."""
        item = self._first
        while item is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
            item = self._queue.get()

    def _read(self, batches: Iterable[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                self._queue.put(batch)
        except BaseException as error:
            self._queue.put(error)
        else:
            self._queue.put(None)
