"""How users name partitions of topics and times of records."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from kbroker.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker.administration.admin import Place
    from kbroker.client.admin import ClusterAdmin

PLACES = "TOPIC[:0,1,…]"
TIME = click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d"])
LOCAL = "local time unless it has an offset"


def milliseconds_of(when: datetime) -> int:
    """Since the epoch, as records have it."""
    return int(when.timestamp() * 1000)


def named_partitions(admin: ClusterAdmin, items: Iterable[str], what: str) -> list[Place]:
    """The partitions that each `topic` or `topic:0,1,…` names; `what` the items are, for a refusal.

    ClickException for what there is not, UsageError for what is neither.
    """
    known = admin.topics()
    partitions: dict[Place, None] = {}
    for item in items:
        name, colon, numbers = item.partition(":")
        if name not in known:
            raise click.ClickException(
                f"{name}: UNKNOWN_TOPIC_OR_PARTITION: there is no such topic{did_you_mean(name, known)}"
            )
        wanted = there = set(known[name].partitions)
        if colon:
            if not all(number.isascii() and number.isdigit() for number in numbers.split(",")):
                raise click.UsageError(f"{what} {item}: must be topic or topic:0,1,…")
            wanted = {int(number) for number in numbers.split(",")}
        if wanted - there:
            raise click.ClickException(f"{name}: there is no partition {min(wanted - there)}")
        partitions.update(dict.fromkeys((name, partition) for partition in sorted(wanted)))
    return [*partitions]
