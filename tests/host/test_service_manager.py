"""What a service manager that starts the broker learns from it: sd_notify(3), as systemd's Type=notify reads it."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.host.service_manager import service_manager
from tests.broker.client import Client
from tests.conftest import StartBroker


class Listener:
    """Takes the datagrams that a broker sends, in order."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(60)

    def next(self) -> dict[str, str]:
        """The variables of one datagram."""
        lines = self.socket.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def until(self, name: str) -> list[dict[str, str]]:
        """The datagrams up to the first that has this variable."""
        found = [self.next()]
        while name not in found[-1]:
            found.append(self.next())
        return found


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    made = Listener(str(tmp_path / "notify"))
    yield made
    made.socket.close()


def test_readiness_comes_when_clients_are_served(
    kbroker_process: StartBroker, listener: Listener, tmp_path: Path
) -> None:
    """A unit that is ordered after the broker would start too soon, or a start would count as failed after a minute."""
    broker = kbroker_process(environ={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"})
    said = listener.until("READY")
    assert said[0]["STATUS"] == "starting" and int(said[0]["EXTEND_TIMEOUT_USEC"]) >= 30_000_000
    assert said[-1]["STATUS"] == "ready"
    with Client(broker.port) as client:
        client.create("t")
    listener.until("WATCHDOG")
    broker.stop()
    assert listener.until("STOPPING")[-1]["STATUS"] == "shutting down"


def test_a_service_manager_that_is_gone_does_not_stop_the_broker(
    kbroker_process: StartBroker, listener: Listener, tmp_path: Path
) -> None:
    """A restart of systemd's user manager would take the broker with it."""
    broker = kbroker_process(environ={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000"})
    listener.until("READY")
    listener.socket.close()
    with Client(broker.port) as client:
        client.create("t")
        assert client.write("t") == 0
    broker.stop()


def test_without_a_service_manager_nothing_is_sent() -> None:
    """A broker in a terminal would look for a socket that is not there."""
    assert service_manager({}) is None
    assert service_manager({"NOTIFY_SOCKET": "relative", "WATCHDOG_USEC": "1"}) is None


def test_the_variables_are_not_handed_to_child_processes() -> None:
    """A child process could tell systemd that the broker is ready, or alive."""
    name = "@kbroker-test-" + str(id(object()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taken:
        taken.bind("\0" + name[1:])
        environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1", "HOME": "/"}
        manager = service_manager(environ)
        assert environ == {"HOME": "/"}
        assert manager is not None
        manager.close()


def test_a_socket_that_is_not_there_is_an_error() -> None:
    """systemd would wait for a readiness that cannot reach it, and kill a broker that serves."""
    with pytest.raises(OSError):
        service_manager({"NOTIFY_SOCKET": "/nonexistent/notify"})


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """A setting that systemd does not know is ignored with a line in the journal, and the service runs open."""
    unit = tmp_path / "kbroker.service"
    text = (Path(__file__).parents[2] / "docs" / "systemd" / "kbroker.service").read_text()
    unit.write_text(text.replace("/opt/kbroker/bin/kbroker", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0 and "kbroker.service" not in checked.stderr, checked.stderr
