"""Random histories of a cluster under its controller, or one after the other: what has to hold in all of them.

Also of `kbroker.cluster.zookeeper.changes`, `kbroker.cluster.zookeeper.transitions`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cluster.requests import ElectionType, IsrChange, Reassignment
from kbroker.cluster.zookeeper import paths
from kbroker.errors import KafkaError
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.office import Cluster, ends_behind, in_cluster

BROKERS = (1, 2, 3, 4)
NAMES = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
MOVES = st.permutations(BROKERS).flatmap(lambda order: st.integers(1, 3).map(lambda count: order[:count]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("go"), st.sampled_from(BROKERS)),
        st.tuples(st.just("come"), st.sampled_from(BROKERS)),
        st.tuples(st.just("leave"), st.sampled_from(BROKERS)),
        st.tuples(st.just("isr"), st.tuples(st.sampled_from(NAMES), st.sets(st.sampled_from(BROKERS)))),
        st.tuples(st.just("caught up"), st.sampled_from(NAMES)),
        st.tuples(st.just("move"), st.tuples(st.sampled_from(NAMES), st.none() | MOVES)),
        st.tuples(st.just("elect"), st.sampled_from(ElectionType)),
        st.tuples(st.just("cut"), st.just(None)),
        st.tuples(st.just("depose"), st.just(None)),
        st.tuples(
            st.just("end amid"), st.tuples(st.sampled_from(NAMES), st.none() | MOVES, st.integers(0, 4), st.booleans())
        ),
    ),
    min_size=1,
    max_size=25,
)


class History:
    """What was so at any time: the leader of each epoch, the epochs and versions of each partition."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.last: dict[TopicPartition, dict[str, Any]] = {}

    def _check_written(self) -> None:
        contents, self.cluster.ensemble.contents = self.cluster.ensemble.contents, []
        for path, data in contents:
            if not path.endswith("/state"):
                continue
            name = TopicPartition(path.split("/")[3], int(path.split("/")[5]))
            new, old = json.loads(data or b""), self.last.get(name)
            leader, epoch = new["leader"], new["leader_epoch"]
            assert self.leaders.setdefault((name, epoch), leader) == leader, f"two leaders of {name} in epoch {epoch}"
            if old is not None:
                assert epoch >= old["leader_epoch"]
                assert new["controller_epoch"] >= old["controller_epoch"]
                if leader not in (-1, old["leader"]) and "leader_recovery_state" not in new:
                    assert leader in old["isr"], f"{leader} may lack records: {old} → {new}"
            self.last[name] = new

    def check(self) -> None:
        self._check_written()
        cluster = self.cluster
        live = {int(name) for name in cluster.ensemble.children_of(paths.BROKER_IDS)}
        for name, state in cluster.states().items():
            assigned = cluster.json(paths.topic(name.topic))["partitions"][str(name.partition)]
            leader, epoch, isr = state["leader"], state["leader_epoch"], state["isr"]
            assert isr
            assert leader == -1 or leader in isr
            assert set(isr) <= set(assigned), (name, state, assigned)
            if leader == -1:
                assert not live & set(isr), f"{name} could have a leader: {state}"
            else:
                assert leader in live
            for node_id in live:
                broker = cluster.brokers[node_id]
                told = broker.metadata[name]
                assert (told.leader, told.leader_epoch, told.isr) == (leader, epoch, isr)
                assert set(told.offline_replicas) == set(assigned) - live
                if node_id in assigned:
                    mine = broker.states[name]
                    assert (mine.leader, mine.leader_epoch) == (leader, epoch), (node_id, name)
                    assert mine.replicas == assigned
                elif name in broker.states:
                    # The StopReplica was lost with its controller; metadata say that others have it by now.
                    assert epoch > broker.states[name].leader_epoch, (node_id, name)


async def step(cluster: Cluster, action: str, argument: Any) -> None:
    live = sorted(cluster.sessions)
    administration = cluster.office.administration
    if action == "go" and argument in live:
        cluster.go(argument)
    elif action == "come" and argument not in live:
        await cluster.come(argument)
    elif action == "leave" and argument in live:
        await administration.controlled_shutdown(cluster.epoch_of(argument))
        await cluster.settled()
        cluster.go(argument)
    elif action in ("isr", "caught up"):
        name, isr = argument if action == "isr" else (argument, live)
        await propose(cluster, name, sorted(isr))
    elif action == "move":
        name, replicas = argument
        await administration.alter_reassignments([Reassignment(name, replicas)], True)
    elif action == "elect":
        await administration.elect_leaders(argument, None)
    elif action == "cut":
        session = cluster.office.session
        session.suspend()
        session.resume()
    elif action == "depose":
        session = cluster.office.session
        session.drop()
        await cluster.settled()
        session.resume()
    elif action == "end amid":
        await end_amid(cluster, *argument)


async def end_amid(cluster: Cluster, name: TopicPartition, replicas: Sequence[int] | None, *writes: Any) -> None:
    """The controller ends somewhere in a reassignment, or in what comes of it; later it stands for election again."""
    office = cluster.office
    write = office.session.multi
    ends_behind(office.session, writes[0], sees_last=writes[1])
    with contextlib.suppress(KafkaError):
        await office.administration.alter_reassignments([Reassignment(name, replicas)], True)
    office.session.drop()
    await cluster.settled()
    office.session.multi = write  # type: ignore[method-assign]
    office.session.resume()


async def propose(cluster: Cluster, name: TopicPartition, isr: Sequence[int]) -> None:
    """The leader's own wish for its ISR: replicas that it has, and itself."""
    state = cluster.state(name.topic, name.partition)
    leader = state["leader"]
    if leader == -1:
        return
    assigned = cluster.json(paths.topic(name.topic))["partitions"][str(name.partition)]
    wanted = [*state["isr"], *(each for each in isr if each not in state["isr"])]
    wanted = [each for each in wanted if each == leader or (each in isr and each in assigned)]
    version = cluster.ensemble.nodes[paths.state(name.topic, name.partition)].version
    change = IsrChange(name, state["leader_epoch"], version, [(each, -1) for each in wanted])
    (outcome,) = await cluster.office.administration.alter_partitions(cluster.epoch_of(leader), [change])
    assert outcome.error is None or isinstance(outcome.error, KafkaError)


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_whatever_happens_leaders_are_of_the_isr_and_all_know_it(steps: list[tuple[str, Any]]) -> None:
    """Records that were acknowledged would be lost, or two brokers lead one partition, in some order of events."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [2, 3, 4]])
        await cluster.create("u", [[3, 1]])
        history = History(cluster)
        history.check()
        for action, argument in steps:
            await step(cluster, action, argument)
            await cluster.settled()
            history.check()
        for node_id in BROKERS:
            if node_id not in cluster.sessions:
                await cluster.come(node_id)
        await cluster.settled()
        history.check()

    in_cluster(body, brokers=BROKERS, offices=2)
