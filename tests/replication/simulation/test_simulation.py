"""Many histories of a partition with three replicas; and rules that are broken on purpose, which they must find out.

A history that fails prints its seed and what happened in it: `play(seed)` plays it again.  `KBROKER_HISTORIES` and
`KBROKER_HISTORY_SEED` say how many, from which seed on.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from typing import Any

import pytest

from kbroker.cluster.client import NodeError
from kbroker.replication.isr_manager import IsrManager
from kbroker.replication.leader_and_isr import ControllerRequests
from kbroker.replication.partition import Partition
from tests.replication.cluster.controller import HandController
from tests.replication.simulation.history import ViolationError, play
from tests.replication.simulation.mutations import Mutation, commit_at_append, never_truncate, take_anyone_into_the_isr
from tests.replication.simulation.network import Network
from tests.replication.simulation.virtual_loop import VirtualLoop, run_virtually

HISTORIES = int(os.environ.get("KBROKER_HISTORIES", "30"))
FIRST_SEED = int(os.environ.get("KBROKER_HISTORY_SEED", "1"))
MOST_FOR_A_MUTATION = 400


@pytest.mark.parametrize("part", range(2))
def test_what_was_committed_stays_whatever_fails(part: int) -> None:
    """A record that a client was told of could be lost with a machine."""
    committed = acknowledged = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + HISTORIES, 2):
        history = play(seed)
        committed += len(history.committed)
        acknowledged += len(history.acknowledged)
    assert committed > 10 * HISTORIES // 2 and acknowledged, "the histories test nothing"


def test_a_history_is_the_same_under_its_seed() -> None:
    """A failure could not be played again."""
    first, again = play(7), play(7)
    assert (first.events, first.committed) == (again.events, again.committed)


def test_connections_break_in_the_order_in_which_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them is first would hang on addresses in memory, and a seed play another history in each process."""
    loop = VirtualLoop()
    network = Network(loop, random.Random(1))
    lost: list[int] = []

    async def main() -> None:
        network.servers[1] = never
        transport = network.transport(2)
        for number in range(20):
            await transport.connect("1", 1, lambda _: None, lambda _, number=number: lost.append(number), 1)  # type: ignore[misc]
        moments = itertools.count(1)
        monkeypatch.setattr(network, "delay", lambda: next(moments))
        network.drop(1)
        await asyncio.sleep(100)

    run_virtually(main(), loop)
    assert lost == list(range(20))


async def never(_header: Any, _request: Any) -> None:
    raise AssertionError("nobody asks for anything")


def test_a_broker_that_is_back_is_taken_in_again_however_late_others_learnt_that_it_was_gone() -> None:
    """A leader that is told last that the broker is gone leaves it out of the ISR for good: a controller's older word
    must not come after its newer one."""
    for seed in (1001203, 1000208):
        play(seed)


def test_a_broker_that_dies_while_its_leader_wants_it_in_the_isr_is_not_taken_in() -> None:
    """An ISR would have a member whose log has lost its end, and that one be elected."""
    play(2007940)


def commit_by_the_isr_in_force_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_needed", lambda self: self.isr)


def lead_in_old_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ControllerRequests, "_check", lambda *_: None)

    def take(self: Any, state: Any) -> None:
        self._fetchers.forget((state.topic, state.image.partition))
        known = self._replicas.hosted((state.topic, state.image.partition))
        if known is not None:
            known.leader_epoch = -1
        original(self, state)

    original = ControllerRequests._take
    patch.setattr(ControllerRequests, "_take", take)


def take_an_isr_for_granted(patch: pytest.MonkeyPatch) -> None:
    original = IsrManager.propose

    def propose(self: Any, partition: Any, isr: tuple[int, ...]) -> None:
        original(self, partition, isr)
        partition.isr = isr

    patch.setattr(IsrManager, "propose", propose)


def say_the_end_whatever_it_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "high_watermark_lags", False)


def say_what_was_so_before_after_what_is_so_now(patch: pytest.MonkeyPatch) -> None:
    async def send(self: Any, node_id: int, make: Any, version: int) -> Any:
        node, body = self.nodes[node_id], make()
        while body is not None and node.alive and self.nodes.get(node_id) is node:
            try:
                return await node.client.send(body, version)
            except NodeError:
                await asyncio.sleep(0.05)
        return None

    patch.setattr(HandController, "_send", send)


# Each with a seed that has found it out, not long before which the search begins.
MUTATIONS: dict[Mutation, int] = {
    commit_at_append: 0,
    commit_by_the_isr_in_force_alone: 10,
    take_anyone_into_the_isr: 49,
    never_truncate: 3,
    lead_in_old_epochs: 0,
    take_an_isr_for_granted: 7,
    say_the_end_whatever_it_is: 3,
    say_what_was_so_before_after_what_is_so_now: 1001203,
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
def test_a_broken_rule_is_found_out(mutation: Mutation, monkeypatch: Any) -> None:
    """The histories could pass whatever the code does."""
    mutation(monkeypatch)
    first = max(0, MUTATIONS[mutation] - 1)
    with pytest.raises(ViolationError):
        for seed in range(first, first + MOST_FOR_A_MUTATION):
            play(seed)
