"""Ports are given once, whatever number of processes asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.testing import ports

ROOT = Path(__file__).resolve().parent.parent
ASKED = 10
# Prints what it was given, and keeps it until its input ends; nothing ever listens.
OTHER = f"""
import sys
from kbroker.testing import ports
ports.FIRST, ports.BEHIND_LAST = map(int, sys.argv[1:])
print(*(ports.free_port() for _ in range({ASKED})), flush=True)
sys.stdin.read()
"""


def test_two_processes_are_never_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tests that run side by side would start their brokers on one port: one of them fails, now and then."""
    first = ports.free_port()
    monkeypatch.setattr(ports, "FIRST", first - 20)
    monkeypatch.setattr(ports, "BEHIND_LAST", first + 20)
    command = [sys.executable, "-c", OTHER, str(ports.FIRST), str(ports.BEHIND_LAST)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdin is not None
        theirs = {int(word) for word in other.stdout.readline().split()}
        ours = {ports.free_port() for _ in range(ASKED)}
        other.stdin.close()
    assert other.returncode == 0
    assert len(theirs) == len(ours) == ASKED
    assert not theirs & (ours | {first})
