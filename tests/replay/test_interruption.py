"""A command on Spark as its user has it: on a terminal, with what it says while it works, and Ctrl-C.

Also of `kbroker.replay.interruption`, `kbroker.cli.spark.stage_progress`.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.replay.interruption import interruption_kept, keeping_the_handler, py4j_silent
from tests.cli.terminal import CTRL_C, Terminal

ROWS = 300_000
MAPPING = 'format = "csv"\ntime = { column = "t", unit = "s" }\nrecord = { source = "s", topic = "t", size = "n" }\n'


@pytest.fixture
def _others_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_others_handler")
def test_a_handler_that_pyspark_would_have_set_is_gone() -> None:
    """Ctrl-C would ask a JVM whose answer is being read, and end in tracebacks."""
    before = signal.getsignal(signal.SIGINT)
    made = keeping_the_handler(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert made is before is signal.getsignal(signal.SIGINT)


def test_py4j_logs_nothing_of_what_it_raises(caplog: pytest.LogCaptureFixture) -> None:
    """A traceback would stand before the command's own line."""
    record = logging.LogRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "lost", None, None)
    with py4j_silent():
        logging.getLogger("py4j.clientserver").error("lost")
        logging.getLogger().handle(record)
        logging.getLogger().error("of others")
    assert caplog.messages == ["of others"]


def test_what_fails_on_the_way_out_of_an_interrupted_call_does_not_hide_the_interruption() -> None:
    """Ctrl-C would end in the words of a lost JVM and a status that says that the trace is bad."""
    with pytest.raises(KeyboardInterrupt), interruption_kept():
        try:
            raise KeyboardInterrupt
        finally:
            try:
                raise ConnectionError
            except ConnectionError as error:
                raise RuntimeError("Answer from Java side is empty") from error


def test_an_error_without_an_interruption_stays_what_it_is() -> None:
    """Its user would not be told what is wrong."""
    with pytest.raises(RuntimeError, match=r"^bad$"), interruption_kept():
        raise RuntimeError("bad")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_long_read_shows_how_far_it_is_and_ends_with_ctrl_c_without_a_word(tmp_path: Path) -> None:
    """Its user would not know whether it hangs, and be shown three tracebacks for an answer."""
    pytest.importorskip("pyspark")
    (tmp_path / "mine.toml").write_text(MAPPING)
    (tmp_path / "trace.csv").write_text("t,n\n" + "".join(f"{second},100\n" for second in range(ROWS)))
    words = ("trace", "inspect", str(tmp_path / "trace.csv"), "--mapping", str(tmp_path / "mine.toml"))
    with Terminal(80, *words, "--master", "local[2]") as terminal:
        terminal.wait_for(r"reading: \d+ of [1-9]\d* parts")
        terminal.type(CTRL_C)
        assert terminal.end() == 130, terminal.text
        shown = terminal.text.rpartition("^C")[2]
    assert not [word for word in ("Traceback", "ERROR", "Exception", "py4j") if word in shown], shown
