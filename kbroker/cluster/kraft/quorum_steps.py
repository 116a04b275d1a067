"""The questions that an observer of the quorum asks, and the steps that answers come to: see `quorum`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbroker.cluster.kraft.batches import MetadataBatch
    from kbroker.metadata.image import Endpoint

NO_LEADER = -1
UNKNOWN = -1


class Leader(NamedTuple):
    """The active controller of an epoch."""

    node_id: int
    epoch: int
    endpoint: Endpoint


class SnapshotId(NamedTuple):
    """A snapshot holds what all records before `end_offset` say; `epoch` is that of the last of them."""

    end_offset: int
    epoch: int


class EpochStart(NamedTuple):
    """Where the records of an epoch begin in the log."""

    epoch: int
    offset: int


# Questions


class LogPlace(NamedTuple):
    """How far an observer is: the epoch that it knows, its log's end and last epoch, its high watermark."""

    epoch: int
    end_offset: int
    last_epoch: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask for the records behind the log's end."""

    to: Endpoint
    place: LogPlace


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Ask for the bytes of a snapshot from a position on."""

    to: Endpoint
    epoch: int
    snapshot: SnapshotId
    position: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask no controller before this time."""

    until: float


# Steps


@dataclass(frozen=True, slots=True)
class Append:
    """Whole batches that follow the log's end."""

    batches: tuple[MetadataBatch, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    """Take away what is not below this offset, which lies between two batches."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """Bytes of a snapshot; `is_last`: it is whole with them, to be checked and loaded."""

    snapshot: SnapshotId
    position: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """The high watermark has moved: records below it count."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class Elected:
    """The epoch or its leader has changed: to be kept on disk before the next question."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something is wrong with a controller's answer; another one is asked."""

    text: str


@dataclass(frozen=True, slots=True)
class Fatal:
    """This broker cannot go on."""

    text: str


Ask = Fetch | FetchSnapshot
Step = Append | Truncate | SnapshotPiece | Committed | Elected | Trouble | Fatal


@dataclass(frozen=True, slots=True)
class Identity:
    """The node that asks.  `cluster_id` None: not known yet.  `may_lead`: it has the controller role."""

    node_id: int
    cluster_id: str | None
    directory_id: bytes
    may_lead: bool = False


@dataclass(frozen=True, slots=True)
class KeptLog:
    """What there is on disk: the newest snapshot, the epochs of the log behind it and where that ends.  `epoch` and
    `leader_id` as last heard."""

    end_offset: int = 0
    epochs: Sequence[EpochStart] = ()
    snapshot: SnapshotId | None = None
    epoch: int = 0
    leader_id: int = NO_LEADER
