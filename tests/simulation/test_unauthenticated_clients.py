"""The rules about clients without rights, each shown to fail where a broker breaks it."""

from __future__ import annotations

import pytest

from kbroker.gate.gatekeeper import BrokerGatekeeper
from kbroker.security.acl.standard_authorizer import StandardAuthorizer
from kbroker.security.principal import Session
from tests.simulation.judge import ViolationError
from tests.simulation.runner import kind_of, play_seed
from tests.simulation.unauthenticated_clients import is_secured
from tests.simulation.world import World

SEEDS = [seed for seed in range(1, 400) if kind_of(seed)[0] is World and is_secured(seed, 1)]


def violation() -> str:
    """What the judge says of the first history that breaks a rule."""
    for seed in SEEDS:
        try:
            play_seed(seed)
        except ViolationError as error:
            return str(error).splitlines()[0]
    return "nothing is wrong"


def test_what_leaves_to_a_client_without_rights_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API that forgets to ask the authorizer would be found by nobody."""
    monkeypatch.setattr(StandardAuthorizer, "is_authorized", lambda *_: True)
    assert "stranger" in violation()


def test_a_right_that_counts_on_after_its_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open connections would keep rights that were taken away."""
    monkeypatch.setattr(BrokerGatekeeper, "renew", lambda _: None)
    said = violation()
    assert "may read" in said or "may not read" in said


def test_an_answer_without_a_login_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that authenticates would serve those who do not log in."""
    monkeypatch.setattr(Session, "may_ask", lambda *_: True)
    assert "has not logged in" in violation()


def test_a_tenth_of_all_histories_is_secured() -> None:
    """What few histories have, few faults are found in."""
    seeds = range(1, 5001)
    found = sum(kind_of(seed)[0] is World and is_secured(seed, 1) for seed in seeds)
    assert found >= 0.1 * len(seeds)


def test_a_session_without_an_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """`connections.max.reauth.ms` could do nothing."""
    monkeypatch.setattr(Session, "has_expired", lambda *_: False)
    assert "and its session ended at" in violation()
