"""What Tab does in a shell that has read what docs/command-line.md says.  Also of `kbroker.cli.completion`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from kbroker.cli import completion
from kbroker.cli.main import cli, run
from tests.broker.client import Client
from tests.broker_process import BrokerProcess
from tests.ports import free_port
from tests.readme import PROGRAM, program

SCRIPT = """
export PATH="{path}:$PATH"
source <(kbroker completion bash)
complete -p kbroker
COMP_WORDS=(kbroker topics des) COMP_CWORD=2
{function}
echo "${{COMPREPLY[@]}}"
"""


def test_bash_completes_what_kbrokers_own_script_says(tmp_path: Path) -> None:
    """The documented line would write a file that the shell cannot use."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    program(tmp_path / "kbroker", PROGRAM.format(python=sys.executable, module="kbroker.cli"))
    text = SCRIPT.format(path=tmp_path, function="_kbroker_completion kbroker")
    done = subprocess.run([bash, "-c", text], capture_output=True, text=True, timeout=200, check=True)
    registered, completed = done.stdout.splitlines()
    assert "_kbroker_completion" in registered
    assert completed == "describe"


@pytest.mark.parametrize(
    ("shell", "registers"),
    [("bash", "complete -o nosort -F _kbroker_completion kbroker"), ("zsh", "#compdef kbroker"), ("fish", "complete")],
)
def test_each_shell_has_a_script(shell: str, registers: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The shell would be given another one's, or one that asks by a variable which nothing reads."""
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    environ = {**os.environ, "_KBROKER_COMPLETE": f"{shell}_source"}
    # What click itself writes for a program of this name.
    text = "import sys; from kbroker.cli.main import main; sys.argv[0] = 'kbroker'; main()"
    done = subprocess.run([sys.executable, "-c", text], env=environ, capture_output=True, text=True, check=True)
    assert script.split() == done.stdout.split()
    assert registers in script and f"{shell}_complete" in script


@pytest.fixture(scope="module")
def broker(module_broker: BrokerProcess) -> BrokerProcess:
    """With two topics, and a group of consumers."""
    with Client(module_broker.port) as client:
        client.create("orders")
        client.create("payments")
    settings = {"bootstrap.servers": module_broker.bootstrap, "group.id": "readers"}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()
    return module_broker


def asking(*words: str) -> dict[str, str]:
    """What bash sets where the last word is to be completed."""
    return {
        "_KBROKER_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("kbroker", *words)),
        "COMP_CWORD": str(len(words)),
    }


def names_in(output: str) -> list[str]:
    """What bash is given."""
    return [line.partition(",")[2] for line in output.splitlines() if line]


def completed(*words: str) -> list[str]:
    """What bash would be given for the last word by the command."""
    command = [sys.executable, "-m", "kbroker.cli"]
    environ = {**os.environ, **asking(*words)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=200, check=False)
    assert done.stderr == ""
    return names_in(done.stdout)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("topics", "describe", "-b", "{}", "o"), ["orders"]),
        (("topics", "describe", "-b", "{}", "orders", "o"), []),
        (("topics", "alter", "-b", "{}", "pay"), ["payments"]),
        (("produce", "-b", "{}", "pay"), ["payments"]),
        (("consume", "-b", "{}", "-g", "r"), ["readers"]),
        (("groups", "describe", "-b", "{}", "r"), ["readers"]),
        (("groups", "reset-offsets", "readers", "-b", "{}", "-t", "o"), ["orders"]),
        (("settings", "show", "-b", "{}", "--topic", "pay"), ["payments"]),
        (("share", "describe", "-b", "{}", "r"), []),
        (("streams", "describe", "-b", "{}", "r"), []),
    ],
    ids=" ".join,
)
def test_topics_and_groups_of_the_cluster_are_completed(
    words: tuple[str, ...], names: list[str], broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long names would be typed, and mistyped."""
    # A shell's user waits for a second; a test, for as long as the machine takes.
    monkeypatch.setattr(completion, "SECONDS", 100.0)
    asked = asking(*(each.format(broker.bootstrap) for each in words))
    done = CliRunner().invoke(cli, prog_name="kbroker", env=asked, catch_exceptions=False)
    assert names_in(done.output) == names


@pytest.mark.parametrize(
    ("words", "names"),
    [(("he",), ["help"]), (("help", "topi"), ["topics"]), (("help", "topics", "cre"), ["create"])]
    + [(("help", *words, ""), []) for words in (("topics", "create"), ("nothing",))],
    ids=" ".join,
)
def test_words_behind_help_are_commands(words: tuple[str, ...], names: list[str]) -> None:
    """The commands of a group would have to be known before help on them can be had."""
    assert completed(*words) == names


def test_where_no_broker_answers_nothing_is_completed_and_nothing_said() -> None:
    """An error would be printed into the line that is being typed."""
    assert completed("topics", "describe", "-b", f"127.0.0.1:{free_port()}", "o") == []
    assert completed("topics", "describe", "-b", "nowhere", "o") == []
