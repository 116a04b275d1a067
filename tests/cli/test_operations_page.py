"""The commands of docs/operations.md, run as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
TIMES_BY_HAND = re.compile(r"`(kbroker (?:topics|settings|logs) [^`…]*)`")


def commands() -> list[str]:
    """Those in blocks, then those within a line that are complete."""
    text = PAGE.read_text()
    blocks = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    inline = [found for found in TIMES_BY_HAND.findall(text) if len(found.split()) > 3 and "DIR" not in found]
    return blocks + inline


def test_every_command_on_the_page_works(broker: BrokerProcess) -> None:
    """Somebody with a full disk would type what the page says, and get a usage error."""
    with closing(Session(broker.port)) as session:
        session.create("orders")
        session.fill("orders", Batch([(b"k", b"v")]))
    listed = commands()
    assert len(listed) >= 10
    for line in ("kbroker consume orders --from-beginning --exit-at-end --group readers", *listed):
        words = shlex.split(line)
        where = ("--metrics", broker.metrics_url) if words[1] == "logs" else ("-b", broker.bootstrap)
        command = [sys.executable, "-m", "kbroker.cli", *words[1:], *where]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, (line, done.stdout, done.stderr)


def test_other_pages_know_of_it() -> None:
    """Nobody would find the page."""
    root = PAGE.parents[1]
    for name in ("README.md", "docs/metrics.md"):
        assert "operations.md" in (root / name).read_text()
