"""`kbroker doctor` of a node with the controller role.

Of `kbroker.cli.checks.quorum_checks`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.main import run
from tests.broker_process import BrokerProcess
from tests.cluster.kraft.combined import combined, start_together, stop_together
from tests.cluster.kraft.processes import format_directory
from tests.compat.waiting import wait_for
from tests.ports import free_port

METADATA = "__cluster_metadata-0"


def said(capsys: pytest.CaptureFixture[str], properties: Path | None, *overrides: str) -> list[tuple[str, str, str]]:
    """Level, subject and text of all that the doctor finds."""
    named = [] if properties is None else [str(properties)]
    run(["doctor", "--json", *named, *(word for each in overrides for word in ("--override", each))])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return [(each["level"], each["subject"], each["found"]) for each in found]


def of(found: list[tuple[str, str, str]], subject: str) -> list[tuple[str, str]]:
    return [(level, text) for level, about, text in found if about == subject]


@pytest.fixture(name="alone")
def _alone(tmp_path: Path) -> Path:
    """The settings of a controller whose one other voter is not there, formatted."""
    ports = free_port(), free_port()
    path = tmp_path / "server.properties"
    settings = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{ports[0]}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{ports[0]},2@127.0.0.1:{ports[1]}",
        "log.dirs": str(tmp_path / "data"),
        "metrics.listener": "none",
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    format_directory(str(tmp_path / "data"), 1)
    return path


def test_a_directory_is_read_as_the_start_will(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A voter that does not start would be found at its start, when the quorum needs it."""
    data, folder = alone.parent / "data", alone.parent / "data" / METADATA
    ((level, text),) = of(said(capsys, alone), "metadata log")
    assert level == "ok"
    assert "is new" in text
    folder.mkdir(exist_ok=True)
    state = folder / "quorum-state"
    state.write_text(
        '{"leaderId":2,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    ((level, text),) = of(said(capsys, alone), "metadata log")
    assert (level, text.partition(": ")[2]) == ("ok", "epoch 7, node 2 led, no vote")
    state.write_text("{")
    ((level, text),) = of(said(capsys, alone), "metadata log")
    assert level == "problem"
    assert "cannot be read" in text
    state.unlink()
    (folder / f"{0:020}.log").touch()
    ((level, text),) = of(said(capsys, alone), "metadata log")
    assert level == "problem"
    assert "missing beside a log" in text
    meta = data / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    ((level, text),) = of(said(capsys, alone), "metadata log")
    assert level == "problem"
    assert "belongs to node 2" in text
    meta.unlink()
    ((level, text),) = of(said(capsys, alone), "metadata log")
    assert level == "problem"
    assert "is not formatted" in text


def test_a_quorum_of_one_needs_no_formatting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A newcomer would be asked to format what the start formats, or a node would warn of its own silence."""
    port = free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://:{port}",
        "advertised.listeners": f"CONTROLLER://localhost:{port}",
        "controller.quorum.bootstrap.servers": f"localhost:{port}",
        "log.dirs": str(tmp_path / "data"),
        "metrics.listener": "none",
    }
    overrides = [f"{key}={value}" for key, value in settings.items()]
    found = said(capsys, None, *overrides)
    ((level, text),) = of(found, "metadata log")
    assert level == "ok" and text.endswith("the start begins it, with a new cluster") and not of(found, "quorum")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kbroker-metadata.sqlite").write_bytes(b"x")
    ((level, text),) = of(said(capsys, None, *overrides), "metadata log")
    assert level == "ok" and text.endswith("kbroker-metadata.sqlite")


def test_a_voter_that_is_not_there_and_an_open_listener_are_warned_of(
    alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stranger could take the lead, and the lost voter be noticed with the second one."""
    found = said(capsys, alone)
    ((level, text),) = of(found, "quorum")
    assert level == "warning"
    assert text.startswith("voter 2 at 127.0.0.1:")
    assert of(found, "controller listener") == [("ok", "no stranger on a network may take part in the quorum")]
    port = free_port()
    ((level, text),) = of(said(capsys, alone, f"listeners=CONTROLLER://0.0.0.0:{port}"), "controller listener")
    assert level == "warning"
    assert "does not authenticate" in text


@pytest.fixture(name="nodes")
def _nodes(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    nodes = combined(tmp_path, [free_port() for _ in range(3)], {})
    start_together(nodes)
    try:
        yield nodes
    finally:
        stop_together(nodes)


def test_what_the_leader_says_of_the_voters_is_told(
    nodes: list[BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    """A voter that runs and follows nothing would be noticed when it is the last one."""

    def quorum(number: int) -> list[tuple[str, str]]:
        command = nodes[number].command()
        settings = [word for flag, word in pairwise(command) if flag == "--override"]
        return of(said(capsys, None, *settings), "quorum")

    wait_for(lambda: all(level == "ok" for level, _ in quorum(0)), "all voters to be well", seconds=60)
    found = [text for _, text in quorum(0)]
    assert sum("answers in" in text for text in found) == 2
    assert sum("leads in epoch" in text for text in found) == 1
    assert sum("lacks 0 records" in text or "lacks 1 records" in text for text in found) == 3
    leader = next(int(text.split()[1]) for text in found if "leads in epoch" in text)
    gone = leader % 3
    nodes[gone].kill()
    name = f"voter {gone + 1}"

    def is_warned_of() -> bool:
        warned = [text for level, text in quorum(leader - 1) if level == "warning"]
        return any(f"{name} at" in text for text in warned) and any(
            f"{name} has not fetched" in text for text in warned
        )

    wait_for(is_warned_of, "the voter that is gone to be warned of", seconds=60)
    nodes[(gone + 1) % 3 if (gone + 1) % 3 != leader - 1 else (gone + 2) % 3].kill()
    # The leader has lost its majority.
    wait_for(
        lambda: any("leads the quorum" in text for level, text in quorum(leader - 1) if level == "warning"),
        "the doctor to say that none leads",
        seconds=60,
    )
