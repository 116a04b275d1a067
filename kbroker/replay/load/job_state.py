"""Where a job (a restore, a mirror) keeps how far it is: a directory that executors see, or a Spark file system.

In a shared directory each lane has a file that its task replaces after every slice, and locks keep a second run out
(`lanes`).  On Spark's file systems one document, `_state` (`versions`), holds everything: the driver gives lanes'
states to its tasks, and replaces the document with what they bring back.  So a lane has begun in the document before a
task writes to its partition, and tasks end after some records (`lanes.CARRIED_RECORDS`), which bounds what has to be
read back behind a run that died.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kbroker.client.cluster import Cluster
from kbroker.client.list_offsets import TopicPartition, list_offsets
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.files import local_path, locked, read_json, write_json
from kbroker.replay.load.hadoop_folder import HadoopFolder, is_remote
from kbroker.replay.load.lanes import (
    CarriedStates,
    LaneFiles,
    LaneResult,
    LaneState,
    LaneStates,
    Target,
    read_state,
    state_path,
)
from kbroker.replay.load.versions import Versions
from kbroker.types import LATEST, JsonObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "_state"


class JobState(Protocol):
    """What a job keeps, on the driver."""

    where: str

    def held(self) -> AbstractContextManager[None]:
        """A context in which the state is this run's.  LoadError where another run has it."""

    def read(self, name: str) -> JsonObject | None:
        """A document of the job's own; None where there is none."""

    def write(self, name: str, value: JsonObject) -> None:
        """Replaces a document."""

    def lane(self, topic: str, partition: int) -> LaneState | None:
        """None for a lane that has not begun."""

    def put_lane(self, topic: str, partition: int, state: LaneState) -> None:
        """Replaces a lane's state while no task runs."""

    def states(self) -> LaneStates:
        """For tasks that begin now."""

    def begin(self, target: Target, job: str, starts: Mapping[TopicPartition, int]) -> None:
        """Lanes that may be new begin here, as far as tasks could not say that themselves."""

    def took(self, results: Iterable[LaneResult]) -> None:
        """What tasks have brought back counts."""


def job_state(spark: SparkSession | None, place: str) -> JobState:
    """The state at a path or URI.  A session is needed for a URI."""
    if not is_remote(place):
        return SharedState(local_path(place))
    if spark is None:
        raise LoadError(f"{place}: a session of Spark is needed for its file systems")
    return CarriedState(HadoopFolder(spark, place))


class SharedState:
    """In a directory that the driver and all executors see."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.where = str(directory)

    @contextmanager
    def held(self) -> Iterator[None]:
        """By a lock that ends with the process."""
        self._directory.mkdir(parents=True, exist_ok=True)
        busy = f"another run uses the state {self.where}: wait for it, or end it"
        with locked(self._directory / "job.lock", 0.0, busy):
            yield

    def read(self, name: str) -> JsonObject | None:
        """A JSON file."""
        found: JsonObject | None = read_json(self._directory / f"{name}.json")
        return found

    def write(self, name: str, value: JsonObject) -> None:
        """Replaces the file."""
        write_json(self._directory / f"{name}.json", value)

    def lane(self, topic: str, partition: int) -> LaneState | None:
        """From the lane's file."""
        return read_state(self._directory, topic, partition)

    def put_lane(self, topic: str, partition: int, state: LaneState) -> None:
        """Replaces the lane's file."""
        path = state_path(self._directory, topic, partition)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(state))

    def states(self) -> LaneStates:
        """The files."""
        return LaneFiles(self.where)

    def begin(self, target: Target, job: str, starts: Mapping[TopicPartition, int]) -> None:
        """Tasks do that."""

    def took(self, results: Iterable[LaneResult]) -> None:
        """Tasks have written it."""


class CarriedState:
    """On one of Spark's file systems: `{"documents": {name: …}, "lanes": [[topic, partition, state]]}`."""

    def __init__(self, folder: HadoopFolder) -> None:
        self.where = folder.uri
        self._versions = Versions(folder, NAME)
        self._documents: dict[str, JsonObject] = {}
        self._lanes: dict[TopicPartition, LaneState] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """From here on a run that began before can publish nothing."""
        plain = self._versions.latest()
        try:
            if isinstance(plain, dict):
                self._documents = dict(plain["documents"])
                self._lanes = {(topic, partition): LaneState(**state) for topic, partition, state in plain["lanes"]}
            elif plain is not None:
                raise TypeError("no object")
        except (KeyError, TypeError, ValueError) as error:
            raise LoadError(f"the state at {self.where} is not as a job writes it: {error}") from None
        self._publish()
        yield

    def read(self, name: str) -> JsonObject | None:
        """Of the state's document."""
        return self._documents.get(name)

    def write(self, name: str, value: JsonObject) -> None:
        """Replaces the state."""
        if self._documents.get(name) != value:
            self._documents[name] = value
            self._publish()

    def lane(self, topic: str, partition: int) -> LaneState | None:
        """As it was published last."""
        return self._lanes.get((topic, partition))

    def put_lane(self, topic: str, partition: int, state: LaneState) -> None:
        """Replaces the state."""
        self._lanes[topic, partition] = state
        self._publish()

    def states(self) -> LaneStates:
        """As they are now."""
        return CarriedStates(self.where, dict(self._lanes))

    def begin(self, target: Target, job: str, starts: Mapping[TopicPartition, int]) -> None:
        """Notes where the target's partitions end before anything is written: what is behind that is the lane's."""
        new = [at for at in starts if at not in self._lanes]
        if not new:
            return
        with Cluster(target.bootstrap, target.client) as cluster:
            ends = list_offsets(cluster, dict.fromkeys(new, LATEST))
        self._lanes |= {at: LaneState(job, starts[at], ends[at].offset) for at in new}
        self._publish()

    def took(self, results: Iterable[LaneResult]) -> None:
        """One version for all of them."""
        found = {one.at: LaneState.of(one.state) for one in results if one.state}
        if found:
            self._lanes |= found
            self._publish()

    def _publish(self) -> None:
        lanes = [[*at, asdict(state)] for at, state in sorted(self._lanes.items())]
        self._versions.publish({"documents": self._documents, "lanes": lanes})


def note_gap(state: JobState, topic: str, partition: int, job: str, gone: tuple[int, int], target_next: int) -> None:
    """Takes a lane over source positions that are gone, which its state lists from then on."""
    found = state.lane(topic, partition) or LaneState(job, gone[0], target_next)
    found.gaps.append([*gone, time.time_ns() // 1_000_000])
    found.position = gone[1]
    state.put_lane(topic, partition, found)


def added(earlier: LaneResult | None, later: LaneResult) -> LaneResult:
    """What two runs of a lane did together."""
    if earlier is None:
        return later
    return replace(later, written=earlier.written + later.written, found=earlier.found + later.found)
