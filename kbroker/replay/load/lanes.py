"""Lanes: records in a fixed order into one partition, each once, also behind a run that failed.

A lane owns its target partition: no other producer writes there while the job lives.  So the target's log end offset
tells how many records were written.  The lane's state, a JSON file that is replaced as a whole, states that everything
up to `position` of the source is in the target below offset `target_next`.  Records that a killed run wrote after its
last state lie between `target_next` and the log end offset.  The next run reads them back and compares them one by one
with the source's records from `position` on.  Equal records count as written; a difference is an error, because another
producer must have written.

    {"job", "position", "target_next", "records", "map": [[position, position after, target offset, records]], "gaps"}

`map` takes source positions to target offsets: one entry for each range in which both grow alike.

A file lock per lane keeps a task of a dying run from writing at the same time as the next run.  After each slice the
target's log end offset must equal the lane's own count.  Writing is idempotent (acks=all), so answers that get lost
make no duplicates either.

Where the state is not on a file system that executors see, tasks take it along and bring it back (`CarriedStates`,
`job_state`): there are no locks then, and what a task wrote that did not come back is recognised in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kbroker._fast.records.record_packer import BatchPacker
from kbroker.client.cluster import ClientSettings, Cluster
from kbroker.client.list_offsets import TopicPartition, list_offsets
from kbroker.client.producer import Batch, BatchProducer, ProducerSettings
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.files import locked, read_json, write_json
from kbroker.replay.rows import pack_rows, row_columns
from kbroker.replay.sources.offset_ranges import Range
from kbroker.replay.sources.read_range import read_range
from kbroker.types import EARLIEST, LATEST

if TYPE_CHECKING:
    import pyarrow as pa

    from kbroker.replay.sources.read_options import ReadOptions

# The column that says where a row lies in its source; it rises within a lane.
POSITION = "offset"
LOCK_WAIT_S = 60.0
CARRIED_RECORDS = 500_000
"""Of a lane, between two states that tasks bring back."""
Source = Callable[[int], Iterator["pa.RecordBatch"]]


@dataclass(slots=True)
class LaneState:
    """See the module's text."""

    job: str
    position: int
    target_next: int
    records: int = 0
    map: list[list[int]] = field(default_factory=list)
    gaps: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(cls, text: str) -> LaneState:
        """From the JSON that a task brought."""
        return cls(**json.loads(text))

    def written(self, position: int, count: int) -> None:
        """`count` records more, which take the source to `position`."""
        step = [self.position, position, self.target_next, count]
        last = self.map[-1] if self.map else None
        if last is not None and last[1] == step[0] and last[2] + last[3] == step[2] and _even(last) and _even(step):
            last[1], last[3] = position, last[3] + count
        elif count:
            self.map.append(step)
        self.position, self.target_next, self.records = position, self.target_next + count, self.records + count


def _even(step: list[int]) -> bool:
    return step[1] - step[0] == step[3]


class OpenedState(Protocol):
    """A lane's state while its task runs."""

    def read(self) -> LaneState | None:
        """None for a lane that has not begun."""

    def write(self, state: LaneState) -> None:
        """What counts when the next run begins, however this one ends."""


class LaneStates(Protocol):
    """The states of lanes as tasks have them; picklable."""

    @property
    def where(self) -> str:
        """What to call the place in messages."""

    @property
    def most(self) -> int | None:
        """Records of a lane that a task writes before it brings the state back; None: it writes the state itself."""

    def opened(self, topic: str, partition: int) -> AbstractContextManager[OpenedState]:
        """One lane's, which no other run has meanwhile, as far as that can be said."""


@dataclass(frozen=True, slots=True)
class LaneFiles:
    """In a directory that the driver and all executors see, with a lock for each."""

    where: str
    most: int | None = None

    @contextmanager
    def opened(self, topic: str, partition: int) -> Iterator[OpenedState]:
        """LoadError where another run has it for LOCK_WAIT_S."""
        path = state_path(self.where, topic, partition)
        busy = f"another run writes to {topic}-{partition} with the state {self.where}: wait for it, or end it"
        with locked(path.with_suffix(".lock"), LOCK_WAIT_S, busy):
            yield _StateFile(self.where, topic, partition)


@dataclass(frozen=True, slots=True)
class _StateFile:
    where: str
    topic: str
    partition: int

    def read(self) -> LaneState | None:
        return read_state(self.where, self.topic, self.partition)

    def write(self, state: LaneState) -> None:
        write_json(state_path(self.where, self.topic, self.partition), asdict(state))


@dataclass(frozen=True, slots=True)
class CarriedStates:
    """As the driver gave them to its tasks, which bring them back in their results; every lane has begun."""

    where: str
    states: Mapping[TopicPartition, LaneState]
    most: int | None = CARRIED_RECORDS

    def opened(self, topic: str, partition: int) -> AbstractContextManager[OpenedState]:
        """A lane's state, which is written nowhere."""
        return nullcontext(_Carried(self.states.get((topic, partition))))


@dataclass(frozen=True, slots=True)
class _Carried:
    state: LaneState | None

    def read(self) -> LaneState | None:
        return None if self.state is None else LaneState.of(json.dumps(asdict(self.state)))

    def write(self, state: LaneState) -> None:
        """The result has it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how lanes write; picklable.  `read` reads the target back; `states` are the lanes' own."""

    bootstrap: str
    client: ClientSettings
    read: ReadOptions
    states: LaneStates
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    batch_bytes: int = 256 << 10
    slice_records: int = 50_000
    slice_bytes: int = 32 << 20
    keep_timestamps: bool = True


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What a run of a lane did: `found` were in the target already, `position` is where the next run goes on.
    `state`: as JSON, where the driver keeps it."""

    topic: str
    partition: int
    written: int
    found: int
    position: int
    state: str = ""

    @property
    def at(self) -> TopicPartition:
        """The target's partition."""
        return self.topic, self.partition


def state_path(directory: str | Path, topic: str, partition: int) -> Path:
    """The file with a lane's state."""
    return Path(directory) / "lanes" / f"{topic}-{partition}.json"


def read_state(directory: str | Path, topic: str, partition: int) -> LaneState | None:
    """None for a lane that has not begun.  Raises LoadError."""
    path = state_path(directory, topic, partition)
    plain = read_json(path)
    try:
        return None if plain is None else LaneState(**plain)
    except TypeError as error:
        raise LoadError(f"{path} is not as a lane writes it: {error}") from None


def run_lane(
    target: Target,
    topic: str,
    partition: int,
    job: str,
    begin: int,
    source: Source,
    end: int | None = None,
    most: int | None = None,
) -> LaneResult:
    """Writes the records of `source(position)` from the position in the lane's state on; a new lane starts at `begin`.

    `end`   the lane's position once the source has no more rows; None: behind its last row
    `most`  records after which it ends before that
    Raises LoadError, or the error of a client.  An executor's.
    """
    with (
        target.states.opened(topic, partition) as kept,
        Cluster(target.bootstrap, target.client) as cluster,
        BatchProducer(cluster, target.producer) as producer,
    ):
        lane = _Lane(target, topic, partition, cluster, producer)
        state = kept.read()
        if state is None:
            state = LaneState(job, begin, lane.log_end())
            kept.write(state)
        if state.job != job:
            raise LoadError(
                f"the state of {topic}-{partition} at {target.states.where} belongs to {state.job}, not to {job}: give "
                "each job a state directory of its own"
            )
        pending = lane.log_end() - state.target_next
        if pending < 0:
            raise LoadError(
                f"{topic}-{partition} ends before offset {state.target_next}, up to which it was written: it was "
                "truncated or created anew; begin again with a new state directory"
            )
        begun = state.records
        batches = source(state.position)
        if pending:
            batches = lane.recognise(batches, pending, state)
            kept.write(state)
        found = state.records - begun
        for position, count in lane.write(batches):
            lane.check_end(state.target_next + count)
            state.written(position, count)
            kept.write(state)
            if most is not None and state.records - begun - found >= most:
                break
        else:
            if end is not None and end > state.position:
                state.written(end, 0)
                kept.write(state)
    carried = json.dumps(asdict(state)) if target.states.most is not None else ""
    return LaneResult(topic, partition, state.records - begun - found, found, state.position, carried)


class _Lane:
    """One lane's reading back and writing."""

    def __init__(self, target: Target, topic: str, partition: int, cluster: Cluster, producer: BatchProducer) -> None:
        self.target = target
        self.at = (topic, partition)
        self.name = f"{topic}-{partition}"
        self.cluster = cluster
        self.producer = producer

    def log_end(self) -> int:
        return list_offsets(self.cluster, {self.at: LATEST})[self.at].offset

    def check_end(self, expected: int) -> None:
        found = self.log_end()
        if found != expected:
            raise LoadError(
                f"{self.name} ends at offset {found} instead of {expected}: another producer wrote to it at the same "
                "time, and each record once cannot be kept; end the other writer, delete the topic, begin anew with "
                "a new state directory"
            )

    def recognise(self, batches: Iterator[pa.RecordBatch], pending: int, state: LaneState) -> Iterator[pa.RecordBatch]:
        """Takes the records that an earlier run wrote after its last state off the source; gives the rest.

        Raises LoadError."""
        left, position = pending, state.position
        first = list_offsets(self.cluster, {self.at: EARLIEST})[self.at].offset
        rest: pa.RecordBatch | None = None
        while left:
            batch = next(batches, None)
            if batch is None:
                raise LoadError(self._foreign(state.target_next + pending - left, "the source has no more records"))
            taken = batch.slice(0, min(left, batch.num_rows))
            self._compare(taken, state.target_next + pending - left, first)
            left -= taken.num_rows
            position = taken.column(POSITION)[-1].as_py() + 1
            rest = batch.slice(taken.num_rows) if taken.num_rows < batch.num_rows else None
        state.written(position, pending)
        return _chain(rest, batches)

    def _compare(self, source: pa.RecordBatch, base: int, first: int) -> None:
        """LoadError unless each of the target's records from `base` on is the source's at that place; it has those from
        `first` on."""
        import pyarrow as pa

        columns = ("key", "value", "timestamp", "timestampType", "headers", "offset")
        piece = Range(*self.at, max(base, first), base + source.num_rows)
        if piece.size <= 0:
            return
        for batch in read_range(piece, columns, self.target.read):
            places = np.asarray(batch.column("offset")) - base
            expected = source.take(pa.array(places))
            for name in ("key", "value", "headers", "timestamp"):
                if name == "timestamp" and not self._timestamps_are_kept(batch):
                    continue
                wanted = expected.column(name).to_pylist() if name in source.schema.names else [None] * len(places)
                for place, have, want in zip(places, batch.column(name).to_pylist(), wanted, strict=True):
                    if have != _plain(name, want):
                        raise LoadError(self._foreign(base + int(place), f"its {name} is another than the source's"))

    def _timestamps_are_kept(self, batch: pa.RecordBatch) -> bool:
        return self.target.keep_timestamps and batch.column("timestampType")[0].as_py() == 0

    def _foreign(self, offset: int, why: str) -> str:
        return (
            f"{self.name} has a record at offset {offset} that this job did not write ({why}): another producer writes "
            "there, or the source was changed; give the job a topic of its own and a new state directory"
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int]]:
        """Writes in slices; after each, when it is acknowledged, the position behind it and its records."""
        packer = BatchPacker(self.target.batch_bytes)
        count, size, position = 0, 0, 0
        for whole in batches:
            for at in range(0, whole.num_rows, self.target.slice_records):
                batch = whole.slice(at, self.target.slice_records)
                self._pack(packer, batch)
                count += batch.num_rows
                size += batch.nbytes
                position = batch.column(POSITION)[-1].as_py() + 1
                if count >= self.target.slice_records or size >= self.target.slice_bytes:
                    self._flush(packer)
                    yield position, count
                    count, size = 0, 0
        if count:
            self._flush(packer)
            yield position, count

    def _pack(self, packer: BatchPacker, batch: pa.RecordBatch) -> None:
        columns = row_columns(batch, with_timestamp=self.target.keep_timestamps)
        pack_rows(packer, columns, np.arange(batch.num_rows, dtype=np.int64).data, lambda: self._send(packer))

    def _send(self, packer: BatchPacker) -> None:
        if packer.count:
            self.producer.add(*self.at, Batch.taken_from(packer))

    def _flush(self, packer: BatchPacker) -> None:
        self._send(packer)
        self.producer.flush()


def _chain(first: pa.RecordBatch | None, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
    yield from others


def _plain(name: str, value: object) -> object:
    """As a topic gives it back: text as its bytes, no headers as null, times in whole milliseconds."""
    if name in ("key", "value"):
        return value.encode() if isinstance(value, str) else value
    if name == "headers":
        return value or None
    if name == "timestamp" and value is not None:
        return value.replace(microsecond=value.microsecond // 1000 * 1000)  # type: ignore[attr-defined]
    return value


def patient(client: ClientSettings) -> ClientSettings:
    """The address has proved right on the driver: a broker that does not answer now may be restarting."""
    return replace(client, first_patience_s=client.patience_s)
