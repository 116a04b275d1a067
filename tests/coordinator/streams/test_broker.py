"""Streams groups of a running broker: its topics are made, commands, metrics and log show it, a crash keeps it."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.main import run
from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.coordinator.consumer.record_answers import Socket, topic_ids
from tests.coordinator.streams.script import StreamsScript


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path, {"group.streams.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
    )
    with process:
        yield process


def script_of(broker: BrokerProcess) -> StreamsScript:
    """A new connection, and the words of the script."""
    host, _, port = broker.bootstrap.partition(":")
    caller = Socket(host, int(port))
    wait_for(
        lambda: not caller.call("FindCoordinator", 4, key_type=0, coordinator_keys=["g"]).coordinators[0].error_code,
        "the coordinator",
    )
    return StreamsScript(caller, {}, lambda: None)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a command prints as JSON."""
    assert run(list(words)) == 0
    return json.loads(capsys.readouterr().out)


def test_a_group_is_served_shown_and_survives_a_crash(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Operators could not see a group, and a restart would take its tasks away."""
    script = script_of(broker)
    assert isinstance(script.caller, Socket)
    topic_ids(script.caller)
    epoch = script.join("joins", "a").member_epoch
    beats = iter(range(1_000))

    def beat() -> Any:
        answer = script.beat(f"beat {next(beats)}", "a", epoch)
        return answer if answer.active_tasks else None

    epoch = wait_for(beat, "tasks").member_epoch
    assert shown(capsys, "streams", "list", "-b", broker.bootstrap, "--json") == [{"group": "g", "state": "Stable"}]
    (group,) = shown(capsys, "streams", "describe", "g", "-b", broker.bootstrap, "--json")
    assert group["subtopologies"][1] == {
        "subtopology": "1",
        "reads": ["g-r-repartition"],
        "writes": [],
        "changelogs": ["g-c-changelog"],
    }
    (member,) = group["members"]
    assert member["active"] == ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]
    assert member["has_target"] and member["process"] == "A"
    assert run(["streams", "describe", "g", "-b", broker.bootstrap]) == 0
    assert "g-c-changelog" in capsys.readouterr().out
    assert run(["streams", "describe", "nobody", "-b", broker.bootstrap]) == 1
    with urllib.request.urlopen(f"{broker.metrics_url}/metrics") as page:
        metrics = page.read().decode()
    assert 'kbroker_groups{state="Stable"} 1.0' in metrics
    assert 'kbroker_group_members{group="g"} 1.0' in metrics
    (rebalances,) = re.findall(r"^kbroker_group_rebalances_total (\S+)$", metrics, re.MULTILINE)
    assert float(rebalances) == group["epoch"] - 1, "each new epoch counts"
    assert "group g: a new epoch, as its topics changed" in broker.output()
    script.caller.close()
    broker.kill()
    broker.start()
    script = script_of(broker)
    assert isinstance(script.caller, Socket)
    answer = script.beat("after the crash", "a", epoch)
    assert (answer.error_code, answer.member_epoch, answer.status) == (0, epoch, [])
    (again,) = shown(capsys, "streams", "describe", "g", "-b", broker.bootstrap, "--json")
    assert again == group
    assert (script.beat("leaves", "a", -1)).error_code == 0
    assert shown(capsys, "streams", "list", "-b", broker.bootstrap, "--json") == [{"group": "g", "state": "Empty"}]
    script.caller.close()
