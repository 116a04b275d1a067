"""The voters of the quorum as the log says it (KIP-853): who votes, and where each listens.

The last VotersRecord of the log counts, committed or not, and a truncation takes it back.  Before the first one count
those of the settings (`controller.quorum.voters`, kraft.version 0): they have no directories, and any of a node's is
its voter.  A change adds or removes one voter at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kbroker.cluster.kraft.batches import ControlRecord, MetadataBatch, records_of
from kbroker.cluster.raft.election import ReplicaKey, Voters
from kbroker.metadata.image import Endpoint
from kbroker.schemas import wire
from kbroker.types import ZERO_UUID

KRAFT_VERSIONS = 0, 1
"""The first and the last kraft.version that this node knows."""
DYNAMIC = 1
"""The kraft.version from which on the log names the voters."""


class Voter(NamedTuple):
    """One of them; `endpoints` by the names of its listeners, `versions` its range of kraft.version."""

    key: ReplicaKey
    endpoints: Mapping[str, Endpoint]
    versions: tuple[int, int] = KRAFT_VERSIONS


@dataclass(frozen=True, slots=True)
class VoterSet:
    """All of them, by node id."""

    by_id: Mapping[int, Voter] = field(default_factory=dict)

    @staticmethod
    def of(record: wire.VotersRecord) -> VoterSet:
        """Those of a record."""
        found = {}
        for each in record.voters:
            ends = {end.name.upper(): Endpoint(end.host, end.port) for end in each.endpoints}
            versions = each.kraft_version_feature
            found[each.voter_id] = Voter(
                ReplicaKey(each.voter_id, bytes(each.voter_directory_id)),
                ends,
                (versions.min_supported_version, versions.max_supported_version),
            )
        return VoterSet(found)

    @staticmethod
    def static(voters: Mapping[int, Endpoint], listener: str) -> VoterSet:
        """Those of the settings."""
        return VoterSet({node_id: Voter(ReplicaKey(node_id), {listener: at}, (0, 0)) for node_id, at in voters.items()})

    def record(self) -> wire.VotersRecord:
        """What says it in the log."""
        made = wire.VotersRecord
        rows = []
        for voter in self.by_id.values():
            feature = made.KRaftVersionFeature()
            feature.min_supported_version, feature.max_supported_version = voter.versions
            rows.append(
                made.Voter(
                    voter_id=voter.key.node_id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        made.Endpoint(name=name, host=at.host, port=at.port) for name, at in voter.endpoints.items()
                    ],
                    kraft_version_feature=feature,
                )
            )
        return made(version=0, voters=rows)

    @property
    def voters(self) -> Voters:
        """As the machine has them."""
        return Voters({node_id: each.key for node_id, each in self.by_id.items()})

    def endpoints(self, listener: str) -> dict[int, Endpoint]:
        """Where they are, by the name of their listener."""
        return {node_id: each.endpoints[listener] for node_id, each in self.by_id.items() if listener in each.endpoints}

    def put(self, voter: Voter) -> VoterSet:
        """With a voter more, or with another in its place."""
        return VoterSet({**self.by_id, voter.key.node_id: voter})

    def without(self, node_id: int) -> VoterSet:
        """With one less."""
        return VoterSet({each: voter for each, voter in self.by_id.items() if each != node_id})

    @property
    def has_directories(self) -> bool:
        """Whether the directory of each voter is known."""
        return all(each.key.directory_id != ZERO_UUID for each in self.by_id.values())


class _Entry(NamedTuple):
    offset: int
    voters: VoterSet | None
    kraft_version: int | None


class VoterHistory:
    """What the log says of the quorum, entry by entry; `beforehand` counts before the first."""

    def __init__(self, beforehand: VoterSet) -> None:
        self._beforehand = beforehand
        self._base: VoterSet | None = None
        self._base_version = 0
        self._entries: list[_Entry] = []

    @property
    def last(self) -> VoterSet:
        """By the log's end."""
        found = next((each.voters for each in reversed(self._entries) if each.voters is not None), self._base)
        return self._beforehand if found is None else found

    @property
    def before_last(self) -> VoterSet:
        """Those that the last record has changed."""
        named = [each.voters for each in self._entries if each.voters is not None]
        if len(named) > 1:
            return named[-2]
        return self._beforehand if self._base is None else self._base

    @property
    def kraft_version(self) -> int:
        """By the log's end."""
        found = (each.kraft_version for each in reversed(self._entries) if each.kraft_version is not None)
        return next(found, self._base_version)

    @property
    def last_offset(self) -> int:
        """The offset of the last record that named voters; -1: none behind the snapshot."""
        return next((each.offset for each in reversed(self._entries) if each.voters is not None), -1)

    @property
    def is_of_log(self) -> bool:
        """Whether the log, and not only a snapshot or the settings, names the voters."""
        return self.last_offset >= 0

    def begin(self, snapshot: Iterable[MetadataBatch]) -> None:
        """What a snapshot says counts in the place of all that was."""
        self._entries, self._base, self._base_version = [], None, 0
        for batch in snapshot:
            self.take(batch)
        found = self._entries
        self._base = next((each.voters for each in reversed(found) if each.voters is not None), None)
        versions = (each.kraft_version for each in reversed(found) if each.kraft_version is not None)
        self._base_version = next(versions, 0)
        self._entries = []

    def take(self, batch: MetadataBatch) -> bool:
        """Take a batch at the log's end; whether the voters may have changed."""
        if not batch.info.is_control:
            return False
        before = len(self._entries)
        for offset, record in records_of(batch, "the metadata log"):
            value = record.value if isinstance(record, ControlRecord) else None
            if isinstance(value, wire.VotersRecord):
                self._entries.append(_Entry(offset, VoterSet.of(value), None))
            elif isinstance(value, wire.KRaftVersionRecord):
                self._entries.append(_Entry(offset, None, value.kraft_version))
        return len(self._entries) > before

    def truncate(self, end_offset: int) -> bool:
        """The log ends here now; whether the voters may have changed."""
        kept = [each for each in self._entries if each.offset < end_offset]
        has_changed = len(kept) < len(self._entries)
        self._entries = kept
        return has_changed
