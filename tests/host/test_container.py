"""Where a container's network leads: `kbroker.host.container`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.host.container import gateways

ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 01001CAC 0003 0 0 0 00000000 0 0 0
eth0 00001CAC 00000000 0001 0 0 0 0000FFFF 0 0 0
"""
ROUTES_6 = (
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001"
    " 00000400 00000001 00000000 00000003 eth0\n"
    "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000"
    " 00000100 00000001 00000000 00000001 eth0\n"
)


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv", ""])
def test_gateways_are_those_of_a_container(tmp_path: Path, mark: str) -> None:
    """A machine's own router would be taken for an engine, and what it translates for viewers on this machine."""
    net = tmp_path / "proc" / "net"
    net.mkdir(parents=True)
    (net / "route").write_text(ROUTES)
    (net / "ipv6_route").write_text(ROUTES_6)
    if mark:
        (tmp_path / mark).parent.mkdir(exist_ok=True)
        (tmp_path / mark).touch()
    assert gateways(tmp_path) == ({"172.28.0.1", "fd00::1"} if mark else frozenset())


def test_a_container_without_a_network_has_none(tmp_path: Path) -> None:
    """The console would fail in it."""
    (tmp_path / ".dockerenv").touch()
    assert gateways(tmp_path) == frozenset()
