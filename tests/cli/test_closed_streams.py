"""What commands do where nobody reads what they say, or nothing is there to read or write."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kbroker.cli.main import COMMANDS, UNREAD_STATUS

SHOWS = ("config --all --json", "config --all", "--help", "topics --help", "--version")


def shell(text: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `kbroker` is the command."""
    line = f'kbroker() {{ "{sys.executable}" -m kbroker.cli "$@"; }}; {text}'
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.parametrize("command", SHOWS)
def test_a_command_whose_output_nobody_reads_ends_as_by_the_signal(command: str) -> None:
    """A script with `pipefail` would take it for a failure, or for wrong usage, and print a traceback."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = [sys.executable, "-m", "kbroker.cli", *command.split()]
    done = subprocess.run(words, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=200, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (UNREAD_STATUS, "")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", SHOWS)
def test_a_command_without_streams_does_its_work(command: str, closed: str) -> None:
    """A service manager or a cron job may close them; it would end in a traceback."""
    done = shell(f"kbroker {command} {closed}; echo $?")
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_an_error_that_nobody_reads_is_still_the_status() -> None:
    """A script would go on as if it had been done."""
    assert "topics" in COMMANDS
    assert shell("kbroker topics list -b 127.0.0.1:1 2>&-; echo $?").stdout == "1\n"


def test_a_lost_connection_is_told() -> None:
    """It would look as if the reader of the output had gone, and nothing be said."""
    code = (
        "import sys; from kbroker.cli import main; from kbroker.cli.topics import topics\n"
        "def lost(*words): raise BrokenPipeError(32, 'Broken pipe')\n"
        "topics._metadata = lost\n"
        "from contextlib import nullcontext; from kbroker.cli.connection import Cluster\n"
        "Cluster.admin = lambda self: nullcontext()\n"
        "main.main(['topics', 'list'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (1, "kbroker: Broken pipe\n")
