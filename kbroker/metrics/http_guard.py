"""The host names under which requests to the metrics listener are answered.

Where viewers prove nothing, a web page whose name was made to resolve to the broker's address (DNS rebinding), open in
the browser of a person who can reach the listener, could read names of topics, groups and clients.  Its requests carry
that name in `Host`, so a request is answered only if its `Host` is

- an address: an address cannot be made to lead elsewhere, and Prometheus often asks by it;
- `localhost`, or a name without a dot, as containers and hosts of one network have: no stranger owns one;
- this machine, a host of `metrics.listener`, `listeners` or `advertised.listeners`, or one of `kbroker.console.hosts`.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig


def names_of(config: BrokerConfig) -> frozenset[str]:
    """The names that the settings know of, in small letters."""
    try:
        own = urlsplit(config.get("metrics.listener")).hostname or ""
    except ValueError:
        own = ""
    listeners = (each.host for each in (*config.listeners, *config.advertised_listeners))
    names = (own, socket.gethostname(), *listeners, *config.get("kbroker.console.hosts"))
    return frozenset(name.lower() for name in names if name)


def refusal(host: str, names: Collection[str]) -> str | None:
    """Why a request with this Host header is not answered; None where it is."""
    name = host_name(host)
    if name is None or not _is_known(name, names):
        return (
            f"nothing is served under the name {name or 'that was sent'!r}: use an address or localhost, or name it in "
            "kbroker.console.hosts"
        )
    return None


def host_name(host: str) -> str | None:
    """The name or address in a Host header, in small letters and without its port; None where it is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def is_local_name(name: str) -> bool:
    """Whether it leads to this machine wherever it is asked for."""
    return name == "localhost" or name.endswith(".localhost")


def _is_known(name: str, names: Collection[str]) -> bool:
    if is_local_name(name) or name in names or "." not in name:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
