"""Signals that end a broker: each is a clean stop, whatever number of them comes at whatever moment.

Also of `kbroker.supervision.process`, `kbroker.waiting`.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from kbroker.host.stop_signals import STOP_SIGNALS
from tests.broker.client import Client, until
from tests.conftest import BrokerProcess

MARKER = ".kafka_cleanshutdown"
RUNS = 5
SECONDS = 90

# A process that stops as a broker does, as soon as it is asked to.  It names each line of Python before which a signal
# would have had the system's meaning.
STOPS_AT_ONCE = """
import asyncio, os, signal, sys
from kbroker.host.stop_signals import STOP_SIGNALS, StopSignals

WANTED = sum(1 << (number - 1) for number in STOP_SIGNALS)

def look(frame, event, argument):
    with open("/proc/self/status") as status:
        masks = dict(line.split(":") for line in status if line.startswith(("SigCgt", "SigIgn")))
    if (int(masks["SigCgt"], 16) | int(masks["SigIgn"], 16)) & WANTED != WANTED:
        print("unwatched at", frame.f_code.co_filename, frame.f_lineno, file=sys.stderr)
    return look

signals = StopSignals()
print("watching", flush=True)
import uvloop

async def serve():
    stopping = asyncio.Event()
    signals.attach(asyncio.get_running_loop(), stopping.set)
    await stopping.wait()
    signals.finish()
    return 0

if "traced" in sys.argv:
    sys.settrace(look)
    os.kill(os.getpid(), signal.SIGTERM)
sys.exit(uvloop.run(serve()))
"""


def send_all(pid: int, is_running: Callable[[], bool]) -> int:
    """Signals without a pause until the process has ended; how many."""
    count = 0
    while is_running():
        for number in STOP_SIGNALS:
            os.kill(pid, number)
        count += 1
    return count


def test_signals_are_watched_before_every_line_of_a_stop() -> None:
    """`timeout 10 kbroker start` sends two signals at once, and the second would cost a recovery now and then."""
    command = [sys.executable, "-c", STOPS_AT_ONCE, "traced"]
    stopped = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (stopped.returncode, stopped.stderr) == (0, "")


def test_no_moment_of_a_stop_is_one_in_which_a_signal_kills() -> None:
    """What Python does between two lines, and at its end, counts as well."""
    # Those in which signals came at more than one moment: this process may get no processor before the other has ended.
    several, deadline = 0, time.monotonic() + SECONDS
    while several < RUNS:
        assert time.monotonic() < deadline
        process = subprocess.Popen(
            [sys.executable, "-c", STOPS_AT_ONCE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "watching\n"
        several += send_all(process.pid, lambda: process.poll() is None) > 1  # noqa: B023
        assert (process.returncode, process.stderr.read()) == (0, "")
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_stop_signal_is_a_clean_stop(broker: BrokerProcess, number: signal.Signals) -> None:
    """Ctrl-C at a terminal, or its end, would cost a recovery."""
    os.kill(broker.pid, number)
    assert broker.wait() == 0
    assert (broker.data_dir / MARKER).exists()


def test_many_signals_at_once_are_one_stop(broker: BrokerProcess) -> None:
    """Ctrl-C on `make run` reaches the broker twice, and would cost a recovery."""
    pid = broker.pid
    for number in STOP_SIGNALS * 3:
        os.kill(pid, number)
    assert broker.wait() == 0
    assert (broker.data_dir / MARKER).exists()
    assert "Traceback" not in broker.output()


def test_a_signal_during_the_start_is_a_clean_stop(broker: BrokerProcess) -> None:
    """A deployment that is taken back at once would cost a recovery."""
    with Client(broker.port) as client:
        client.create("t", 50)
    assert broker.stop() == 0
    before = len(broker.output())
    broker.spawn()
    until(lambda: not (broker.data_dir / MARKER).exists() or " ready on " in broker.output()[before:], "the logs' turn")
    os.kill(broker.pid, signal.SIGTERM)
    os.kill(broker.pid, signal.SIGTERM)
    assert broker.wait() == 0
    assert (broker.data_dir / MARKER).exists()


def test_a_terminal_that_closes_ends_the_broker_in_order(broker: BrokerProcess) -> None:
    """A lost ssh connection would cost a recovery."""
    assert broker.stop() == 0
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *broker.command()], stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    try:
        seen = b""
        while b" ready on " not in seen:
            seen += os.read(controller, 4096)
        assert not (broker.data_dir / MARKER).exists()
        os.close(controller)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert (broker.data_dir / MARKER).exists()


@pytest.mark.parametrize("streams", ["both", "errors alone"])
def test_a_stop_that_nobody_reads_of_has_status_0(broker: BrokerProcess, streams: str) -> None:
    """A service manager would take a clean stop for a failure, as its log, or the terminal, is gone."""
    assert broker.stop() == 0
    out = subprocess.STDOUT if streams == "both" else subprocess.PIPE
    process = subprocess.Popen(
        broker.command(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if streams == "both" else subprocess.DEVNULL,
        stderr=out,
    )
    read_end = process.stdout or process.stderr
    assert read_end is not None
    try:
        seen = b""
        while b" ready on " not in seen:
            seen += os.read(read_end.fileno(), 4096)
        read_end.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert (broker.data_dir / MARKER).exists()


def test_a_broker_under_nohup_goes_on_when_its_terminal_closes(broker: BrokerProcess) -> None:
    """It was started so that it outlives the session."""
    assert broker.stop() == 0
    broker.prefix = ["nohup"]
    broker.start()
    os.kill(broker.pid, signal.SIGHUP)
    # Far longer than it takes a signal to be noticed: several turns of a loop that has been asked since.
    for _ in range(10):
        with Client(broker.port) as client:
            client.ask("ApiVersions", 0, {})
    assert broker.running and "stopping" not in broker.output().rpartition(" ready on ")[2]
    assert broker.stop() == 0
    assert (broker.data_dir / MARKER).exists()
