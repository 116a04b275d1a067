"""One request to one broker of a cluster, and an answer in an order of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.cluster.kraft.processes import Cluster
from tests.cluster.one_request import ask_port


def ask(cluster: Cluster, number: int, request: Any, version: int, client_id: str = "c") -> Any:
    """A broker's answer."""
    return ask_port(cluster.nodes[number].port, request, version, client_id)


def shown(answer: Any, mask: Callable[[str], str] = str) -> list[str]:
    """An answer in an order of its own, as `mask` leaves its text; which living broker it calls the controller is drawn
    by Kafka."""
    text = mask(re.sub(r"controller_id=\d+", "controller_id=*", repr(answer)))
    return sorted(each.strip("[](), ") for each in re.split(r"(?<=[\]\)]), |(?<=\[)", text))
