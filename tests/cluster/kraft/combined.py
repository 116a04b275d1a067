"""Kbrokers that are brokers and controllers of one cluster, one process each, on loopback."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.broker_process import BrokerProcess, answers_api_versions
from tests.cluster.kraft.processes import format_directory
from tests.compat.waiting import wait_for
from tests.ports import free_port

START_SECONDS = 120


def combined(
    folder: Path, ports: Sequence[int], settings: Mapping[str, str], *, are_watched: bool = False
) -> list[BrokerProcess]:
    """Nodes 1 to n of one cluster, not started yet; directories stay.  `are_watched`: their metrics can be read."""
    quorum = {number: free_port() for number in range(1, len(ports) + 1)}
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in quorum.items())
    found = []
    for node_id, port in enumerate(ports, 1):
        own = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{quorum[node_id]}",
            **({} if are_watched else {"metrics.listener": "none"}),
            **settings,
        }
        node = BrokerProcess(folder / f"broker-{node_id}", own, port=port)
        format_directory(str(node.data_dir), node_id)
        found.append(node)
    return found


def start_together(nodes: Sequence[BrokerProcess]) -> None:
    """None of them is ready before most are there."""
    for node in nodes:
        node.spawn()
    for node in nodes:
        wait_for(partial(_answers, node), f"the node on port {node.port} to answer", seconds=START_SECONDS)


def _answers(node: BrokerProcess) -> bool:
    assert node.running, node.output()
    return answers_api_versions(node.port, None)


def stop_together(nodes: Sequence[BrokerProcess]) -> None:
    """As one takes a cluster down: a node that stops alone would wait for the others to lead in its place."""
    for node in nodes:
        if node.process is not None and node.running:
            node.process.send_signal(signal.SIGTERM)
    for node in nodes:
        if node.process is not None:
            node.process.wait(60)
