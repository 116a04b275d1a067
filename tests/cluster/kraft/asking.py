"""One request to one broker of a cluster, over a connection of its own, and an answer in an order of its own."""

from __future__ import annotations

import re
import socket
import struct
from typing import Any

from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import response_message
from tests.cluster.kraft.processes import Cluster


def ask(cluster: Cluster, number: int, request: Any, version: int, client_id: str = "c") -> Any:
    """A broker's answer."""
    with socket.create_connection(("127.0.0.1", cluster.nodes[number].port), timeout=90) as client:
        client.sendall(encode_request(request.api_key, version, 5, client_id, request))
        data = client.makefile("rb")
        (size,) = struct.unpack(">i", data.read(4))
        _, answer = decode_response(response_message(request.api_key), version, data.read(size))
    return answer


def shown(answer: Any) -> list[str]:
    """An answer in an order of its own; which living broker it calls the controller is drawn by Kafka."""
    text = re.sub(r"controller_id=\d+", "controller_id=*", repr(answer))
    return sorted(each.strip("[](), ") for each in re.split(r"(?<=[\]\)]), |(?<=\[)", text))
