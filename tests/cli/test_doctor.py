"""`kbroker doctor`: each thing that may be wrong, and what mends it.

Also of `kbroker.cli.checks.doctor`, `kbroker.config.file_check`, `kbroker.network.ports_in_use`.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.checks.host_checks import Level, check_directory, check_listeners, mount_of, read_mounts
from kbroker.cli.main import run
from kbroker.config import BrokerConfig
from tests.conftest import StartBroker
from tests.ports import free_port

MOUNTS = read_mounts("/dev/a / ext4 rw 0 0\ntmpfs /run tmpfs rw,nosuid 0 0\n/dev/b /data\\040dir ext4 ro 0 0\n")


def examine(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and the findings by subject."""
    data, port = tmp_path / "data", free_port()
    overrides = (f"log.dirs={data}", f"listeners=PLAINTEXT://127.0.0.1:{port}", *arguments)
    status = run(["doctor", "--json", *(word for each in overrides for word in ("--override", each))])
    return status, {each["subject"].partition(":")[0]: each for each in json.loads(capsys.readouterr().out)}


def said(capsys: pytest.CaptureFixture[str], tmp_path: Path, *settings: str) -> list[dict[str, Any]]:
    """All findings for these settings, which a file has."""
    path = tmp_path / "server.properties"
    given = (f"log.dirs={tmp_path}/data", f"listeners=PLAINTEXT://127.0.0.1:{free_port()}", "metrics.listener=none")
    names = {each.partition("=")[0] for each in settings}
    kept = [each for each in given if each.partition("=")[0] not in names]
    path.write_text("".join(f"{each}\n" for each in (*kept, *settings)).replace("\\", "\\\\"))
    run(["doctor", "--json", str(path)])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_a_machine_where_a_broker_would_start_has_no_problem(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Users would look for a fault that is none."""
    status, found = examine(capsys, tmp_path)
    assert status == 0
    assert not [each for each in found.values() if each["level"] == "problem"]
    assert {"settings", "listener PLAINTEXT", "descriptors", "versions"} <= found.keys()
    assert not (tmp_path / "data").exists()


def test_a_wrong_value_and_an_unknown_setting_are_told_apart(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A start that fails would look like one that only warns."""
    status, found = examine(capsys, tmp_path, "num.partitions=many")
    assert status == 1
    assert "num.partitions" in found["settings"]["found"]
    status, found = examine(capsys, tmp_path, "num.partition=3")
    assert status == 0
    assert (found["settings"]["level"], "num.partitions" in found["settings"]["found"]) == ("warning", True)


def test_all_that_is_wrong_is_found_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user would mend one setting after the other, and learn of the port and the machine last."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = (
            f"listeners=PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}",
            "num.partitions=many",
            "log.retention.hours=abc",
            "group.min.session.timeout.ms=1800001",
            "num.partition=3",
        )
        found = said(capsys, tmp_path, *settings)
    problems = [each["found"] for each in found if each["level"] == "problem"]
    for words in ("num.partitions", "log.retention.hours", "group.min.session.timeout.ms", "listens on port"):
        assert sum(words in each for each in problems) == 1, (words, problems)
    assert any("num.partition " in each["found"] for each in found if each["level"] == "warning")
    assert not any(each["found"] == "each setting is known and acted on" for each in found)
    assert {"descriptors", "versions"} <= {each["subject"] for each in found}


@pytest.mark.parametrize("wrong", ["listeners=nowhere", "log.dirs=C:\\data"])
def test_what_a_wrong_setting_is_about_is_not_looked_at(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default's directory or port would be said to be fine, or in use."""
    found = said(capsys, tmp_path, wrong)
    subject = "listener" if "listeners" in wrong else "directory"
    assert not [each for each in found if each["subject"].startswith(subject)]
    assert "versions" in {each["subject"] for each in found}


def test_a_port_of_the_metrics_that_is_taken_is_a_warning_with_the_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker would start, and its metrics be missed later."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = said(capsys, tmp_path, f"metrics.listener=http://127.0.0.1:{port}")
    (finding,) = [each for each in found if each["subject"].startswith("metrics.listener")]
    assert finding["level"] == "warning"
    assert f"process {os.getpid()} (" in finding["found"]


def test_a_file_of_another_user_in_the_directory_is_named_with_the_command_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start by root would leave them, and the next one end with an error of SQLite's."""
    theirs = tmp_path / "orders-0" / "00000000000000000000.log"
    theirs.parent.mkdir()
    theirs.write_text("")
    (tmp_path / "meta.properties").write_text("")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: real(path, mode) and Path(path) != theirs)
    monkeypatch.setattr(os, "geteuid", lambda: 999)
    owner = theirs.stat().st_uid
    (finding,) = check_directory(str(tmp_path), 0, MOUNTS)
    assert finding.level is Level.PROBLEM
    assert finding.found == f"{theirs} may not be written by user 999: it belongs to user {owner}"
    assert finding.mend == f"sudo chown -R 999 {tmp_path}"


def test_a_file_in_place_of_a_directory_is_a_problem(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The broker would end with an error of the system alone."""
    (tmp_path / "data").write_text("")
    status, found = examine(capsys, tmp_path)
    assert status == 1
    assert found[f"directory {tmp_path}/data"]["level"] == "problem"


def test_less_room_than_the_reserve_is_a_problem(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A broker would start and refuse every record."""
    status, found = examine(capsys, tmp_path, f"kbroker.disk.reserve.bytes={1 << 62}")
    assert status == 1
    assert "records are refused" in found[f"directory {tmp_path}/data"]["found"]


def test_a_port_that_is_taken_is_a_problem(tmp_path: Path) -> None:
    """The start would fail although everything else was found in order."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = BrokerConfig.from_mapping({"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": str(tmp_path)})
        (finding,) = check_listeners(config, is_running=False)
        assert finding.level is Level.PROBLEM
        assert f"process {os.getpid()} (" in finding.found and str(port) in finding.found


@pytest.mark.parametrize(("host", "level"), [("localhost", Level.WARNING), ("no.such.host.invalid", Level.WARNING)])
def test_an_advertised_address_that_clients_cannot_use_is_a_warning(host: str, level: Level, tmp_path: Path) -> None:
    """Clients would connect once and never again: the most common beginner's failure."""
    settings = {
        "listeners": f"PLAINTEXT://0.0.0.0:{free_port()}",
        "advertised.listeners": f"PLAINTEXT://{host}:9092",
        "log.dirs": str(tmp_path),
    }
    (finding,) = check_listeners(BrokerConfig.from_mapping(settings), is_running=False)
    assert finding.level is level


def test_a_running_broker_is_named_and_its_port_is_no_problem(
    kbroker_process: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever asks beside the broker would be sent to look for another program on its port."""
    broker = kbroker_process()
    settings = (f"log.dirs={broker.data_dir}", f"listeners=PLAINTEXT://127.0.0.1:{broker.port}")
    status = run(["doctor", "--json", *(word for each in settings for word in ("--override", each))])
    found = {each["subject"]: each for each in json.loads(capsys.readouterr().out)}
    assert status == 0
    assert found["running broker"]["level"] == "warning"
    assert str(broker.pid) in found["running broker"]["found"]


def test_directories_of_apache_kafka_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A start there is refused; the reason would be seen only then."""
    (tmp_path / "data" / "__cluster_metadata-0").mkdir(parents=True)
    (tmp_path / "data" / ".lock").write_text("")
    status, found = examine(capsys, tmp_path)
    assert status == 1
    assert "Apache Kafka" in found["log.dirs"]["found"]


def test_volatile_and_read_only_file_systems_are_found(tmp_path: Path) -> None:
    """Data would be gone with a container, or a broker would fail at its first write."""
    assert mount_of("/run/x", MOUNTS)[1] == "tmpfs"
    assert mount_of("/runner", MOUNTS)[1] == "ext4"
    assert mount_of("/data dir/kafka", MOUNTS)[2] == "ro"
    here = [(str(tmp_path), "tmpfs", "ro")]
    levels = [finding.level for finding in check_directory(str(tmp_path / "data"), 0, here)]
    assert levels == [Level.WARNING, Level.PROBLEM, Level.OK]


@pytest.mark.parametrize(
    ("settings", "level", "words"),
    [
        ({"zookeeper.connect": "zk:port"}, "problem", "'zk:port' of 'zk:port' is not host:port"),
        (
            {
                "zookeeper.connect": "{there}",
                "listeners": "X://127.0.0.1:1,PLAINTEXT://127.0.0.1:0",
                "listener.security.protocol.map": "X:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "advertised.listeners": "PLAINTEXT://127.0.0.1:2",
                "inter.broker.listener.name": "X",
            },
            "problem",
            "X is not among the listeners",
        ),
        ({"zookeeper.connect": "127.0.0.1:1/kafka"}, "problem", "all servers of zookeeper.connect take no connections"),
        ({"zookeeper.connect": "127.0.0.1:1,{there}"}, "warning", "take no connections: 127.0.0.1:1"),
        ({"zookeeper.connect": "{there}/kafka"}, "ok", "all servers of zookeeper.connect take connections"),
    ],
)
def test_what_keeps_a_broker_out_of_its_cluster_is_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, settings: dict[str, str], level: str, words: str
) -> None:
    """The doctor would find all well, and the start wait and fail."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        place = f"127.0.0.1:{there.getsockname()[1]}"
        given = (f"{name}={text.replace('{there}', place)}" for name, text in settings.items())
        status, found = examine(capsys, tmp_path, *given)
    assert (found["cluster"]["level"], status) == (level, int(level == "problem"))
    assert words in found["cluster"]["found"]


@pytest.mark.parametrize(("name", "level"), [("localhost", Level.WARNING), ("127.0.0.1", Level.WARNING)])
def test_the_name_that_a_member_registers_with_is_looked_at(
    name: str, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of a cluster are told the address of each broker, and not the one that they dialled."""
    monkeypatch.setattr(socket, "getfqdn", lambda: name)
    settings = {"zookeeper.connect": "zk:2181", "listeners": f"PLAINTEXT://:{free_port()}"}
    (finding,) = check_listeners(BrokerConfig.from_mapping(settings), is_running=False)
    assert (finding.level, name in finding.found) == (level, True)
