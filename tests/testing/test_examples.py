"""The examples of docs/testing.md, each in a project of its own, and the plug-in under pytest-xdist.

Also of `kbroker.testing.container`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.testing import BrokerError, KafkaBroker

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
NAMES = [re.findall(r"def (test_\w+)", example)[0] for example in EXAMPLES]


def run_pytest(folder: Path, *arguments: str) -> str:
    """pytest in a project of its own; its output.  The plug-in is named, as kbroker need not be installed here."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    environ.pop("PYTEST_ADDOPTS", None)
    (folder / "pytest.ini").write_text("[pytest]\n")
    # In pytest's own directory it would clear away at its end what earlier runs have left, which may take minutes.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:kbroker"]
    command += ["--basetemp", str(folder / "base")]
    done = subprocess.run(
        [*command, "-p", "kbroker.testing.plugin", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
def test_examples_of_the_documentation_run(example: str, tmp_path: Path) -> None:
    """A reader would copy an example that fails."""
    (tmp_path / "test_example.py").write_text(example)
    assert "1 passed" in run_pytest(tmp_path)


def test_workers_of_xdist_have_brokers_of_their_own(tmp_path: Path) -> None:
    """Tests that run side by side would meet each other's topics, or a port that is taken."""
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(
            "import pytest\n"
            "@pytest.mark.parametrize('number', range(3))\n"
            "def test_topic(kafka_broker, kafka_topic, number):\n"
            "    assert kafka_broker.offsets(kafka_topic) == {0: (0, 0)}\n"
        )
    assert "6 passed" in run_pytest(tmp_path, "-n", "2", "--dist", "loadfile")


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    """A wrong setting would end a test with a time-out."""
    with pytest.raises(BrokerError, match=r"num\.partitions"):
        KafkaBroker(tmp_path, {"num.partitions": "none"}).start()


def test_a_paused_broker_goes_on_where_it_was() -> None:
    """A test of time-outs would lose its broker, or hang at its end."""
    with KafkaBroker() as broker:
        topic = broker.create_topic("paused")
        broker.pause()
        broker.resume()
        assert broker.offsets(topic) == {0: (0, 0)}
        broker.pause()
    assert not broker.running
    assert not broker.directory.exists()
