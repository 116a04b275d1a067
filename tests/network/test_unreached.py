"""A warning for clients that ask where the broker is and do not come there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kbroker.handlers import dispatch
from kbroker.network.unreached import FOR_ADDRESSES, FOR_WORK, Address, UnreachedAddress


@dataclass(eq=False)
class Seen:
    """A connection as far as it is looked at."""

    asked: int = FOR_ADDRESSES
    peer_host: str = "172.17.0.1"
    local_host: str = "172.17.0.2"
    local_port: int = 9092


class Looks:
    """Looks again and again; what was said."""

    def __init__(self, advertised: Address | None = None) -> None:
        self.said: list[str] = []
        self.unreached = UnreachedAddress("PLAINTEXT", advertised)

    def look(self, *connections: Seen) -> list[str]:
        self.unreached.look(connections, lambda text, *values: self.said.append(text % values))
        return self.said


@pytest.fixture
def looks() -> Iterator[Looks]:
    yield Looks()


def test_a_client_that_never_comes_is_told_of_once(looks: Looks) -> None:
    """The user of a container would look for the fault at the client, or the log be full of one line."""
    client = Seen()
    assert looks.look(client) == []
    (said,) = looks.look(client)
    assert "a client at 172.17.0.1 asked listener PLAINTEXT where the broker is, was told 172.17.0.2:9092" in said
    assert "advertised.listeners=PLAINTEXT://HOST:PORT" in said and "KBROKER_ADVERTISED_LISTENERS" in said
    assert len(looks.look(client)) == len(looks.look(client, Seen(peer_host="10.0.0.9"))) == 1


def test_the_address_that_is_advertised_is_named() -> None:
    """A wrong advertised.listeners would stay unnoticed, also on one machine."""
    looks = Looks(Address("kafka.example.org", 9092))
    client = Seen(peer_host="127.0.0.1", local_host="127.0.0.1")
    looks.look(client)
    assert "was told kafka.example.org:9092" in looks.look(client)[0]


@pytest.mark.parametrize(
    "others",
    [
        [Seen(asked=FOR_ADDRESSES | FOR_WORK)],
        [Seen(asked=FOR_WORK)],
    ],
)
def test_a_client_that_came_back_is_none(looks: Looks, others: list[Seen]) -> None:
    """Clients keep the connection over which they have asked: each of them would be complained of."""
    client = Seen()
    looks.look(client, *others)
    assert looks.look(client, *others) == []


@pytest.mark.parametrize(
    "client",
    [
        Seen(asked=0),
        Seen(asked=FOR_WORK),
        Seen(peer_host="127.0.0.1", local_host="127.0.0.1"),
        Seen(peer_host="::ffff:127.0.0.1", local_host="::ffff:127.0.0.1"),
        Seen(peer_host="10.0.0.2", local_host="10.0.0.2"),
    ],
)
def test_what_is_no_sign_is_let_be(looks: Looks, client: Seen) -> None:
    """A probe of the port, a client at work or one on this host would be called unreachable."""
    looks.look(client)
    assert looks.look(client) == []


def test_what_apis_are_for() -> None:
    """A client that only asks for addresses would count as one that came, or the other way round."""
    asks = {route.api_key: route.asks for route in dispatch.routes(dispatch.broker_rows())}
    assert {key for key, value in asks.items() if value == FOR_ADDRESSES} == {3, 60}
    assert {key for key, value in asks.items() if not value} == {17, 18, 36, 71, 72}
    assert {asks[0], asks[1], asks[10], asks[22]} == {FOR_WORK}


def test_a_question_that_was_answered_and_ended_is_none(looks: Looks) -> None:
    """A command that lists topics and ends would be called unreachable."""
    looks.look(Seen())
    assert looks.look() == [] and looks.look(Seen()) == []
