"""Whose requests the console answers, and where it shows records."""

from __future__ import annotations

import pytest

from kbroker.console.guard import foreign, is_loopback, why_no_messages, why_not_to
from kbroker.metrics.http_guard import refusal
from kbroker.metrics.http_messages import Request

ASKED = Request("GET", "/console/", "", "", False, True)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9644",
        "localhost",
        "LOCALHOST:80",
        "a.localhost:1",
        "[::1]:9644",
        "192.168.1.5:9644",
        "kafka.lan:9644",
    ],
)
def test_addresses_and_known_names_are_served(host: str) -> None:
    """The console could not be opened by its address, through a tunnel, or by its name."""
    assert refusal(host, {"kafka.lan"}) is None


@pytest.mark.parametrize("host", ["", "evil.example:9644", "127.0.0.1.evil.example", "localhost.evil.example", "[::1"])
def test_other_names_are_refused(host: str) -> None:
    """A web page whose name is made to lead to the broker could read everything (DNS rebinding)."""
    assert "kbroker.console.hosts" in (refusal(host, {"kafka.lan"}) or "")


def test_pages_of_other_origins_are_told_from_its_own() -> None:
    """Any page that is open in a viewer's browser could ask in the viewer's place."""
    asked = ASKED._replace(host="127.0.0.1:9644")
    assert not foreign(asked)
    assert not foreign(asked._replace(fetch_site="same-origin", origin="http://127.0.0.1:9644"))
    assert not foreign(asked._replace(fetch_site="none"))
    assert foreign(asked._replace(fetch_site="cross-site"))
    assert foreign(asked._replace(fetch_site="same-site"))
    assert foreign(asked._replace(origin="http://127.0.0.1:8000"))
    assert foreign(asked._replace(origin="null"))


def test_records_are_shown_where_none_else_can_reach_them() -> None:
    """Every topic could be read by everybody who reaches the listener, without an authorizer being asked."""
    assert why_no_messages("loopback", "127.0.0.1", has_authorizer=False) == ""
    assert why_no_messages("loopback", "::1", has_authorizer=False) == ""
    assert "0.0.0.0" in why_no_messages("loopback", "0.0.0.0", has_authorizer=False)
    assert why_no_messages("always", "0.0.0.0", has_authorizer=False) == ""
    assert "never" in why_no_messages("never", "127.0.0.1", has_authorizer=False)
    assert "authorizer" in why_no_messages("always", "127.0.0.1", has_authorizer=True)
    assert not is_loopback("broker.example")


@pytest.mark.parametrize(
    ("peer", "host", "is_shown"),
    [
        ("172.28.0.1", "localhost:9644", True),
        ("::ffff:172.28.0.1", "127.0.0.1:9644", True),
        ("127.0.0.1", "localhost", True),
        ("172.28.0.3", "localhost:9644", False),
        ("172.28.0.1", "192.168.1.5:9644", False),
        ("172.28.0.1", "kbroker:9644", False),
        ("172.28.0.1", "", False),
        ("", "localhost", False),
    ],
)
def test_a_published_listener_shows_records_to_its_own_machine_alone(peer: str, host: str, is_shown: bool) -> None:
    """Other containers, and other machines where the port is published to them, would read every topic."""
    request = Request("GET", "/console/api/messages", "", "", False, True, host, peer=peer)
    assert (why_not_to(request, {"172.28.0.1"}) == "") is is_shown
    assert why_no_messages("published", "0.0.0.0", has_authorizer=False) == ""
    assert "authorizer" in why_no_messages("published", "0.0.0.0", has_authorizer=True)
