"""Roles that are set down for later, by partition or by topic, and are taken in any order.

Of `kbroker.replication.pending_roles`.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kbroker.metadata.image import PartitionImage, TopicImage, altered
from kbroker.replication import pending_roles
from kbroker.replication.pending_roles import COMPARED_AT_ONCE, PendingRoles
from kbroker.types import TopicPartition

NAMES = ("a", "b")
COUNT = 4


def made(name: str) -> TopicImage:
    rows = tuple(PartitionImage(index, 1, 0, (1, 2), (1, 2)) for index in range(COUNT))
    return TopicImage(name, name.encode() * 16, rows)


def changed(topic: TopicImage, rng: random.Random) -> TopicImage:
    """Some of its partitions have other leaders."""
    rows = list(topic.partitions)
    for index in rng.sample(range(len(rows)), rng.randint(1, len(rows))):
        row = rows[index]
        rows[index] = replace(row, leader=3 - row.leader, leader_epoch=row.leader_epoch + 1)
    return replace(topic, partitions=tuple(rows))


class Roles:
    """What a broker does with them; each partition's role never goes back."""

    def __init__(self) -> None:
        self.pending = PendingRoles()
        self.taken = {(name, index): 0 for name in NAMES for index in range(COUNT)}
        self.topics = {name: made(name) for name in NAMES}

    def take(self, role: tuple[TopicImage, PartitionImage] | None) -> None:
        if role is not None:
            topic, image = role
            assert image.leader_epoch > self.taken[topic.name, image.partition]
            self.taken[topic.name, image.partition] = image.leader_epoch

    def take_first(self) -> None:
        """What is taken is the newest, though an older role was set down before."""
        role = self.pending.pop_first()
        self.take(role)
        if role is not None:
            topic, image = role
            assert image.leader_epoch == self.topics[topic.name].partitions[image.partition].leader_epoch

    def publish(self, name: str, rng: random.Random) -> None:
        """A new image comes; as much time as there is goes into it."""
        old = self.topics[name]
        new = self.topics[name] = changed(old, rng)
        if rng.random() < 0.4:
            self.pending.put_topic(old, new)
            return
        for image in altered(self.pending.before(old), new):
            if rng.random() < 0.5:
                self.pending.put(new, image)
            else:
                self.pending.discard(new, image)
                self.take((new, image))

    def ask(self, name: str, index: int) -> None:
        """A request finds the newest role, whatever is pending."""
        has_newest = self.taken[name, index] == self.topics[name].partitions[index].leader_epoch
        assert has_newest or TopicPartition(name, index) in self.pending
        self.take(self.pending.pop(TopicPartition(name, index)))
        assert self.taken[name, index] == self.topics[name].partitions[index].leader_epoch


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("at_once", [1, 3, COMPARED_AT_ONCE])
def test_every_partition_comes_to_its_newest_role_and_never_back(
    monkeypatch: pytest.MonkeyPatch, seed: int, at_once: int
) -> None:
    """A partition would be led in an epoch that is over, or by nobody."""
    monkeypatch.setattr(pending_roles, "COMPARED_AT_ONCE", at_once)
    rng, roles = random.Random(seed), Roles()
    for _ in range(60):
        kind = rng.choice(("publish", "publish", "ask", "take"))
        if kind == "publish":
            roles.publish(rng.choice(NAMES), rng)
        elif kind == "ask":
            roles.ask(rng.choice(NAMES), rng.randrange(COUNT))
        else:
            roles.take_first()
    while roles.pending:
        roles.take_first()
    for topic in roles.topics.values():
        for row in topic.partitions:
            assert roles.taken[topic.name, row.partition] == row.leader_epoch


def test_a_topic_of_very_many_partitions_is_compared_in_portions() -> None:
    """The loop would be held for all of them, whatever has changed."""
    count = 40 * COMPARED_AT_ONCE
    rows = [PartitionImage(index, 1, 0, (1, 2), (1, 2)) for index in range(count)]
    old = TopicImage("a", b"a" * 16, tuple(rows))
    rows[-1] = replace(rows[-1], leader=2, leader_epoch=1)
    rows[5] = replace(rows[5], leader=2, leader_epoch=1)
    new, pending = replace(old, partitions=tuple(rows)), PendingRoles()
    pending.put_topic(old, new)
    # One that is asked for does not wait for those before it.
    assert pending.pop(TopicPartition("a", count - 1)) == (new, rows[-1])
    assert TopicPartition("a", count - 1) not in pending
    steps = [pending.pop_first() for _ in range(39)]
    assert steps == [(new, rows[5])] + [None] * 38 and pending
    assert pending.pop_first() is None and not pending


def test_settings_that_come_and_go_reach_every_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions would keep settings that were taken back while others had not got them yet."""
    monkeypatch.setattr(pending_roles, "COMPARED_AT_ONCE", 1)
    pending, old = PendingRoles(), made("a")
    pending.put_topic(old, replace(old, configs={"retention.ms": "1"}))
    role = pending.pop_first()
    assert role is not None and role[0].configs
    pending.put_topic(replace(old, configs={"retention.ms": "1"}), old)
    taken = []
    while pending:
        role = pending.pop_first()
        assert role is not None and not role[0].configs
        taken.append(role[1].partition)
    assert taken == list(range(COUNT))


def test_a_topic_that_is_gone_leaves_no_role() -> None:
    """Its partitions would be opened again when their turn comes."""
    pending, old = PendingRoles(), made("a")
    new = changed(old, random.Random(1))
    pending.put(new, new.partitions[0])
    pending.put_topic(old, new)
    pending.forget(new)
    assert not pending
    assert TopicPartition("a", 0) not in pending
    assert pending.pop_first() is None
