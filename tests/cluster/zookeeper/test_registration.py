"""Membership and elections over the model of ZooKeeper: who is registered, who is the controller, what fences it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.election import Election, Fence, Role
from kbroker.cluster.zookeeper.registration import (
    NO_EPOCH,
    BrokerRegistration,
    OwnZnode,
    RegistrationError,
    RegistrationState,
    agreed_cluster_id,
    chosen_node_id,
    generated_node_id,
    make_roots,
)
from kbroker.cluster.zookeeper.session import BadVersionError, Check, MultiError, Set, Stat, ensure_path
from kbroker.cluster.zookeeper.znodes import ControllerZnode, decode_epoch, encode_controller
from kbroker.config import BrokerConfig
from tests.cluster.zookeeper.fake import FakeEnsemble, FakeSession


def member(session: FakeSession, patience_ms: int = 50, node_id: int = 1) -> BrokerRegistration:
    registration = OwnZnode(node_id, lambda: b"{}", patience_ms)
    return BrokerRegistration(session, registration, asyncio.get_running_loop())


async def settled(turns: int = 60) -> None:
    """Let everything that is under way come to its end."""
    for _ in range(turns):
        await asyncio.sleep(0)


def test_the_first_broker_names_the_cluster_and_others_agree() -> None:
    """Two brokers would serve two clusters from one ZooKeeper, or a broker mix the data of two."""

    async def main() -> None:
        ensemble = FakeEnsemble()
        session = ensemble.session()
        await make_roots(session)
        await make_roots(session)
        assert ensemble.content(paths.BROKER_IDS) is None
        assert await agreed_cluster_id(session, None, "new") == "new"
        assert await agreed_cluster_id(session, None, "newer") == "new"
        assert await agreed_cluster_id(session, "new", "newer") == "new"
        with pytest.raises(RegistrationError, match="old"):
            await agreed_cluster_id(session, "old", "newer")

    asyncio.run(main())


def test_generated_ids_are_never_given_twice() -> None:
    """Two brokers would take each other's place."""

    async def main() -> None:
        session = FakeEnsemble().session()
        assert [await generated_node_id(session, 1000) for _ in range(3)] == [1001, 1002, 1003]
        unnamed = BrokerConfig.from_mapping({})
        assert await chosen_node_id(session, unnamed, None) == 1004
        assert await chosen_node_id(session, unnamed, 7) == 7
        named = BrokerConfig.from_mapping({"broker.id": 5})
        assert await chosen_node_id(session, named, 5) == await chosen_node_id(session, named, None) == 5
        with pytest.raises(RegistrationError, match="belong to broker 7"):
            await chosen_node_id(session, named, 7)
        with pytest.raises(RegistrationError, match="not set"):
            await chosen_node_id(session, BrokerConfig.from_mapping({"broker.id.generation.enable": "false"}), None)

    asyncio.run(main())


def test_the_epoch_of_a_broker_is_the_transaction_of_its_registration() -> None:
    """Requests of an earlier life of a broker would be taken for its present ones."""

    async def main() -> None:
        ensemble = FakeEnsemble()
        session = ensemble.session()
        await make_roots(session)
        broker = member(session)
        epochs: list[int] = []

        async def note(epoch: int) -> None:
            epochs.append(epoch)

        broker.on_registered(note)
        first = await broker.register()
        node = ensemble.nodes[paths.broker(1)]
        assert (first, node.version, node.owner) == (node.czxid, 1, session.session_id)
        session.expire()
        assert broker.epoch == -1
        await settled()
        assert broker.state is RegistrationState.REGISTERED
        assert epochs == [first, broker.epoch]
        assert broker.epoch > first
        broker.end()
        session.expire()
        await settled()
        assert paths.broker(1) not in ensemble.nodes

    asyncio.run(main())


def test_an_id_is_waited_for_and_refused_while_another_has_it() -> None:
    """A broker that was killed could not be started again at once, or would push out a living one."""

    async def main() -> None:
        ensemble = FakeEnsemble()
        old, new = ensemble.session(), ensemble.session()
        await make_roots(old)
        await member(old).register()
        with pytest.raises(RegistrationError, match="broker id 1 is in use"):
            await member(new, 20).register()
        waiting = asyncio.ensure_future(member(new, 60_000).register())
        await settled()
        assert not waiting.done()
        old.drop()
        assert await waiting == ensemble.nodes[paths.broker(1)].czxid

    asyncio.run(main())


def test_a_broker_registers_anew_in_the_same_session() -> None:
    """A controller would go on leaving out what the broker has again."""

    async def main() -> None:
        ensemble = FakeEnsemble()
        session = ensemble.session()
        await make_roots(session)
        broker = member(session)
        first = await broker.register()
        broker.renew()
        assert broker.epoch == NO_EPOCH
        await settled()
        assert broker.state is RegistrationState.REGISTERED
        assert broker.epoch == ensemble.nodes[paths.broker(1)].czxid > first

    asyncio.run(main())


class Deaf(FakeSession):
    """A session of a process that is held up: nothing that it watches reaches it."""

    async def exists(self, path: str, watch: Callable[[], None] | None = None) -> Stat | None:
        return await super().exists(path)


def test_an_id_that_was_freed_while_the_process_was_held_up_is_taken() -> None:
    """A start that hangs for as long as it waits would end, and say that another broker has its id."""

    async def main() -> None:
        ensemble = FakeEnsemble()
        old = ensemble.session()
        await make_roots(old)
        await member(old).register()
        waiting = asyncio.ensure_future(member(Deaf(ensemble), 1_000).register())
        await settled()
        old.drop()
        assert await waiting == ensemble.nodes[paths.broker(1)].czxid

    asyncio.run(main())


def test_an_id_that_is_freed_while_the_connection_is_away_is_taken() -> None:
    """A broker that is started again during a fault of ZooKeeper would say that another one has its id, and end."""

    async def scenario() -> None:
        ensemble = FakeEnsemble()
        await make_roots(ensemble.session())
        earlier, session = ensemble.session(), ensemble.session()
        await member(earlier).register()
        waiting = asyncio.ensure_future(member(session, patience_ms=600_000).free())
        await settled()
        session.suspend()
        earlier.drop()
        session.resume()
        await settled()
        assert waiting.done(), "the watch went with the connection"

    asyncio.run(scenario())


def test_a_registration_of_its_own_earlier_session_does_not_keep_a_broker_out() -> None:
    """A broker whose new session comes before the end of the old one would stop."""

    async def main() -> None:
        ensemble = FakeEnsemble()
        session = ensemble.session()
        await make_roots(session)
        broker = member(session)
        first = await broker.register()
        node = ensemble.nodes.pop(paths.broker(1))
        session.expire()
        ensemble.nodes[paths.broker(1)] = node
        ensemble.nodes[paths.BROKER_IDS].children.add("1")
        await settled()
        assert broker.epoch > first

    asyncio.run(main())


class Candidate:
    """A broker that stands for election."""

    def __init__(self, ensemble: FakeEnsemble, node_id: int) -> None:
        self.session = ensemble.session()
        self.terms: list[Fence] = []
        self.fence: Fence | None = None
        self.election = Election(self.session, node_id, SYSTEM_CLOCK, self.elected, self.resigned)
        self.task = asyncio.ensure_future(self.election.run())

    def elected(self, fence: Fence) -> None:
        assert self.fence is None
        self.fence = fence
        self.terms.append(fence)

    def resigned(self) -> None:
        assert self.fence is not None
        self.fence = None

    async def write(self) -> None:
        """What a controller does; fails for a deposed one."""
        fence = self.terms[-1]
        await self.session.multi([Check(paths.CONTROLLER_EPOCH, fence.version), Set("/x", b"%d" % fence.epoch)])


def with_candidates(count: int, body: Callable[[FakeEnsemble, list[Candidate]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        ensemble = FakeEnsemble()
        await ensure_path(ensemble.session(), "/x")
        candidates = [Candidate(ensemble, number) for number in range(1, count + 1)]
        await settled()
        try:
            await body(ensemble, candidates)
        finally:
            for each in candidates:
                each.task.cancel()

    asyncio.run(main())


def test_one_candidate_wins_and_all_know_it() -> None:
    """A cluster would have two controllers, or none."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        (winner,) = [each for each in candidates if each.fence is not None]
        assert winner.fence is not None
        assert winner.fence.epoch == 1
        assert {each.election.controller_id for each in candidates} == {winner.election.controller_id}
        assert ensemble.content(paths.CONTROLLER_EPOCH) == b"1"
        await winner.write()

    with_candidates(3, body)


def test_a_deposed_controllers_writes_fail() -> None:
    """Decisions of two controllers would mix in the znodes of one partition."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        (winner,) = [each for each in candidates if each.fence is not None]
        winner.session.suspend()
        winner.session.drop()
        await settled()
        (successor,) = [each for each in candidates if each.fence is not None]
        assert successor is not winner
        assert winner.fence is None
        winner.session.resume()
        with pytest.raises(MultiError) as caught:
            await winner.write()
        assert isinstance(caught.value.cause, BadVersionError)
        await successor.write()

    with_candidates(2, body)


def test_a_controller_goes_on_in_its_epoch_when_its_session_outlives_a_lost_connection() -> None:
    """Every restart of a ZooKeeper server would cost the cluster a fail-over of its controller."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        (winner,) = [each for each in candidates if each.fence is not None]
        winner.session.suspend()
        assert winner.fence is None
        winner.session.resume()
        await settled()
        assert [fence.epoch for fence in winner.terms] == [1, 1]
        assert winner.election.role is Role.ELECTED

    with_candidates(2, body)


def test_a_controller_whose_session_has_ended_stands_for_election_again() -> None:
    """It would go on in an epoch whose znode is gone, beside the one that is elected after it."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        (only,) = candidates
        only.session.suspend()
        only.session.drop()
        only.session.resume()
        await settled()
        assert [fence.epoch for fence in only.terms] == [1, 2]
        await only.write()

    with_candidates(1, body)


def test_a_controller_znode_of_its_own_earlier_session_is_another_controllers() -> None:
    """It would go on with the fence of a term that ends as soon as ZooKeeper takes the old session's znode away."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        (only,) = candidates
        node = ensemble.nodes.pop(paths.CONTROLLER)
        only.session.expire()
        ensemble.nodes[paths.CONTROLLER] = node
        await settled()
        assert only.fence is None and only.election.controller_id == 1
        assert ensemble.nodes[paths.CONTROLLER] is node
        ensemble.remove(paths.CONTROLLER)
        await settled()
        assert [fence.epoch for fence in only.terms] == [1, 2]
        await only.write()

    with_candidates(1, body)


def test_a_broker_that_starts_again_leaves_its_earlier_sessions_znode_alone() -> None:
    """A broker that was given the id of the controller would depose it."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        (before,) = candidates
        node = ensemble.nodes[paths.CONTROLLER]
        again = Candidate(ensemble, 1)
        candidates.append(again)
        await settled()
        assert ensemble.nodes[paths.CONTROLLER] is node and again.fence is None
        await before.write()
        before.task.cancel()
        before.session.drop()
        await settled()
        assert again.fence is not None and again.fence.epoch == 2

    with_candidates(1, body)


def test_a_term_that_begins_with_a_lost_answer_is_not_taken_for_the_one_before() -> None:
    """The controller would give up the election that it has won, and the cluster be without one for longer."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        (only,) = candidates
        only.session.lose_next_answer()
        only.session.expire()
        await settled()
        assert ensemble.content(paths.CONTROLLER_EPOCH) == b"2"
        assert only.fence is None
        only.session.resume()
        await settled()
        assert [fence.epoch for fence in only.terms] == [1, 2]
        assert ensemble.content(paths.CONTROLLER_EPOCH) == b"2"
        await only.write()

    with_candidates(1, body)


def test_a_controller_node_that_makes_no_sense_is_waited_out() -> None:
    """A broker would stop for a znode that a person has edited."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        (only,) = candidates
        await only.session.set(paths.CONTROLLER, b"nonsense")
        await settled()
        assert only.election.role is Role.ELECTED
        await only.session.delete(paths.CONTROLLER)
        await settled(200)
        async with asyncio.timeout(60):
            while only.election.role is not Role.ELECTED or len(only.terms) < 2:
                await asyncio.sleep(0.01)
        assert only.terms[-1].epoch == 2

    with_candidates(1, body)


def test_a_controller_that_takes_over_without_a_session_is_followed() -> None:
    """Beside a KRaft controller that migrates the cluster, a second one would go on."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        other = ensemble.session()
        await other.delete(paths.CONTROLLER)
        await other.create(paths.CONTROLLER, encode_controller(ControllerZnode(3000, 0, 1)))
        await settled()
        assert {each.election.controller_id for each in candidates} <= {1, 2, 3000}
        for each in candidates:
            if each.fence is not None:
                assert each.election.controller_id != 3000

    with_candidates(2, body)


STEPS = st.lists(
    st.tuples(st.sampled_from(["suspend", "resume", "expire", "drop", "run", "write", "resign"]), st.integers(0, 2)),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_no_two_terms_have_one_epoch_and_only_the_newest_writes(steps: list[tuple[str, int]]) -> None:
    """Whatever happens to sessions, two controllers could both change the cluster."""

    async def body(ensemble: FakeEnsemble, candidates: list[Candidate]) -> None:
        for step, index in steps:
            each = candidates[index]
            if step == "run":
                await settled(10)
            elif step == "resign":
                if each.fence is not None:
                    each.election.resign()
            elif step == "write":
                if each.terms:
                    newest = max(fence.epoch for other in candidates for fence in other.terms)
                    try:
                        await each.write()
                    except Exception:
                        continue
                    assert each.terms[-1].epoch == decode_epoch(ensemble.content(paths.CONTROLLER_EPOCH))
                    assert each.terms[-1].epoch >= newest
            elif step != "resume" or not each.session._back.is_set():
                getattr(each.session, step)()
            holders = [other for other in candidates if other.fence is not None]
            epochs = [other.fence.epoch for other in holders if other.fence is not None]
            assert len(set(epochs)) == len(epochs)
        won = [(fence.epoch, number) for number, each in enumerate(candidates) for fence in set(each.terms)]
        assert len({epoch for epoch, _ in won}) == len(won)
        for each in candidates:
            if not each.session._back.is_set():
                each.session.resume()
        await settled(200)
        assert len([each for each in candidates if each.fence is not None]) == 1

    with_candidates(3, body)
