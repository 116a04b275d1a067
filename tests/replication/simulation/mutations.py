"""Rules of replication that are broken on purpose, of which the histories must find each out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.replication import partition as partitions
from kbroker.replication.partition import Partition

Mutation = Callable[[pytest.MonkeyPatch], None]


def commit_at_append(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_needed", lambda self: (self.node_id,))


def take_anyone_into_the_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partitions, "may_join", lambda *_: True)


def never_truncate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "truncate_to", lambda *_: None)
