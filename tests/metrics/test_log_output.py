"""Log lines as people and machines read them."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from kbroker import log_output
from kbroker.log_output import PlaceLimit, RateLimitedLog


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    target = io.StringIO()
    root, kbroker = logging.getLogger(), logging.getLogger("kbroker")
    before = root.level, kbroker.level
    yield target
    root.setLevel(before[0])
    kbroker.setLevel(before[1])
    for handler in tuple(root.handlers):
        if getattr(handler, "kbroker_output", False):
            root.removeHandler(handler)


def test_text_lines_have_time_level_area_and_message(stream: io.StringIO) -> None:
    """A person could not see when, how bad and where."""
    log_output.setup("text", "info", stream)
    logging.getLogger("kbroker.network").warning("closed %s", "127.0.0.1")
    logging.getLogger("kbroker.network").debug("hidden")
    line = stream.getvalue()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} WARNING network +closed 127\.0\.0\.1\n", line)


def test_a_client_cannot_forge_lines(stream: io.StringIO) -> None:
    """A client id with escape codes could repaint the operator's terminal or fake an entry."""
    log_output.setup("text", "info", stream)
    logging.getLogger("kbroker.network").info("client %s", "a\x1b[2J\r\nb\u2028")
    line = stream.getvalue()
    assert "\x1b" not in line and "\r" not in line and "\u2028" not in line
    assert line.splitlines()[1].startswith("    b")


def test_json_lines_parse(stream: io.StringIO) -> None:
    """A log shipper would drop lines that are no JSON."""
    log_output.setup("json", "debug", stream)
    try:
        raise RuntimeError("boom\nsecond")
    except RuntimeError:
        logging.getLogger("kbroker.storage").exception('failed "%s"', "x\ny")
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert fields["area"] == "storage" and fields["level"] == "ERROR" and fields["message"] == 'failed "x\ny"'
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields["time"])
    assert "RuntimeError: boom" in fields["exception"]


def test_setup_twice_writes_once(stream: io.StringIO) -> None:
    """Each line would show twice after a second set-up."""
    log_output.setup("json", "info", stream)
    log_output.setup("text", "info", stream)
    logging.getLogger("kbroker.x").info("once")
    assert stream.getvalue().count("once") == 1


def test_a_terminal_gets_colour_unless_told_not_to(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    """Escape codes would land in files, or a user who asked for none would get them."""
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    log_output.setup("text", "info", stream)
    logging.getLogger("kbroker.x").error("red")
    assert "\x1b[31m" in stream.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    log_output.setup("text", "info", stream)
    logging.getLogger("kbroker.x").error("plain")
    assert "\x1b" not in stream.getvalue().splitlines()[1]


def test_an_unknown_level_is_refused() -> None:
    """A typo would silence the log without a word."""
    with pytest.raises(ValueError, match="must be one of"):
        log_output.setup("text", "loud")


class _Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _limited(
    caplog: pytest.LogCaptureFixture, max_keys: int = 10, max_lines: int = 100
) -> tuple[RateLimitedLog, _Time]:
    caplog.set_level(logging.INFO, "kbroker.test")
    clock = _Time()
    limited = RateLimitedLog(
        logging.getLogger("kbroker.test"), 10.0, max_keys=max_keys, max_lines=max_lines, monotonic=clock
    )
    return limited, clock


def test_one_line_per_key_and_interval(caplog: pytest.LogCaptureFixture) -> None:
    """A hostile client could fill the disk with log lines."""
    limited, clock = _limited(caplog)
    for _ in range(500):
        limited.warning("a", "bad frame from %s", "x")
    limited.warning("b", "other")
    assert caplog.messages == ["bad frame from x", "other"]
    clock.now += 10
    limited.warning("a", "bad frame from %s", "y")
    assert caplog.messages[-1] == "bad frame from y (suppressed 499 similar)"


def test_flush_tells_what_was_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """A burst that ends would never be counted in the log."""
    limited, clock = _limited(caplog)
    for _ in range(3):
        limited.error("a", "100% broken")
    limited.flush()
    assert caplog.messages == ["100% broken"]
    clock.now += 10
    limited.flush()
    limited.flush()
    assert caplog.messages[1:] == ["suppressed 2 similar to: 100% broken"]


def test_keys_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A key per client address would grow without end."""
    limited, _ = _limited(caplog, max_keys=2)
    for key in range(100):
        limited.info(key, "line %d", key)
        limited.info(key, "line %d", key)
    assert sum(message.startswith("suppressed 1 similar to") for message in caplog.messages) == 98
    limited.flush(everything=True)
    assert sum(message.startswith("suppressed 1 similar to") for message in caplog.messages) == 100


def test_lines_of_all_keys_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A client that sends something else each time could fill the disk with log lines."""
    limited, clock = _limited(caplog, max_lines=3)
    for key in range(100):
        limited.warning(key, "line %d", key)
    limited.flush()
    assert caplog.messages == ["line 0", "line 1", "line 2"]
    clock.now += 10
    limited.flush()
    assert caplog.messages[3:] == ["suppressed 97 messages: over 3 different ones in 10 s"]
    limited.warning(0, "line %d", 0)
    assert caplog.messages[4:] == ["line 0"]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_no_place_in_the_code_fills_the_disk_with_warnings(stream: io.StringIO) -> None:
    """A client that asks for nonsense all day would fill the disk that the records need."""
    handler = log_output.setup("text", "info", stream)
    (old,) = handler.filters
    handler.removeFilter(old)
    clock = Clock()
    limit = PlaceLimit(burst=5, interval_seconds=10, monotonic=clock)
    handler.addFilter(limit)
    logger = logging.getLogger("kbroker.cluster")

    def complain(count: int) -> list[str]:
        before = len(stream.getvalue())
        for number in range(count):
            logger.warning("a request to change %d topics failed: %s", number, "100% of it")
        logger.warning("something else")
        logger.info("not a warning")
        return stream.getvalue()[before:].splitlines()

    assert len(complain(1000)) == 5 + 2
    clock.now += 9
    assert len(complain(1000)) == 2
    clock.now += 10
    lines = complain(1000)
    assert len(lines) == 1 + 2
    assert lines[0].endswith("a request to change 0 topics failed: 100% of it (suppressed 1995 similar)")
    clock.now += 10
    limit.flush()
    assert (
        stream.getvalue()
        .splitlines()[-1]
        .endswith("suppressed 999 similar to: a request to change 999 topics failed: 100% of it")
    )
    assert len(complain(1000)) == 5 + 2, "after a quiet time they are told again"


def test_what_is_limited_by_its_key_is_not_limited_by_its_place(stream: io.StringIO) -> None:
    """Different complaints, which have one line each, would be taken for one."""
    handler = log_output.setup("text", "info", stream)
    handler.addFilter(PlaceLimit(burst=3))
    complaints = RateLimitedLog(logging.getLogger("kbroker.network"))
    for number in range(10):
        complaints.warning(number, "client %d is odd", number)
    assert len(stream.getvalue().splitlines()) == 10
