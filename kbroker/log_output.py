"""Log lines: readable text for a terminal, or one JSON object per line for machines.

Text is `time level area message`, with colours when the stream is a terminal and NO_COLOR is unset.  The area is the
logger's name without `kbroker.`.  Messages may quote what clients sent, so control characters are escaped in text
mode: no client id can write a second line or move the cursor.

`RateLimitedLog` keeps one kind of event from filling the disk: one line per key and interval, then a count of what
was left out.  `PlaceLimit` does so for every warning, by any client: no client fills the disk with lines.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TextIO

ROOT = "kbroker"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_COLOURS = {
    "DEBUG": "\x1b[2m",
    "INFO": "\x1b[32m",
    "WARNING": "\x1b[33m",
    "ERROR": "\x1b[31m",
    "CRITICAL": "\x1b[1;31m",
}
_RESET = "\x1b[0m"
_AREA_WIDTH = 11


def setup(
    format: str = "text",  # noqa: A002 - the setting is called log format
    level: str = "info",
    stream: TextIO | None = None,
    worker: int | None = None,
) -> logging.Handler:
    """Send all logs to `stream` (stderr) in `format`; what is not the broker's own shows from WARNING on.

    `worker`: the number of the worker that speaks, as those of a host share the stream.

    Calling it again replaces the former setting.  ValueError when the level is unknown.
    """
    numeric = logging.getLevelNamesMapping().get(level.upper())
    if numeric is None:
        raise ValueError(f"log level {level!r}: must be one of debug, info, warning, error")
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    text = TextFormatter(colour=_wants_colour(target), worker=worker)
    handler.setFormatter(JsonFormatter(worker) if format == "json" else text)
    root = logging.getLogger()
    for old in tuple(root.handlers):
        if getattr(old, "kbroker_output", False):
            root.removeHandler(old)
    handler.addFilter(PlaceLimit())
    handler.kbroker_output = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(numeric)
    return handler


def _wants_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def area_of(logger_name: str) -> str:
    """`kbroker.network` -> `network`; other libraries keep their name."""
    return logger_name.removeprefix(f"{ROOT}.")


def escape(text: str) -> str:
    """`text` with control characters but newline and tab written as escapes."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO  network     message`; a traceback follows on lines of its own."""

    def __init__(self, *, colour: bool, worker: int | None = None) -> None:
        super().__init__()
        self._colour = colour
        self._worker = "" if worker is None else f"[{worker}] "
        self._second = -1
        self._prefix = ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:  # the local time of a second is worked out once
            self._second = second
            self._prefix = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        level = f"{record.levelname:<7}"
        if self._colour:
            level = f"{_COLOURS.get(record.levelname, '')}{level}{_RESET}"
        message = escape(record.getMessage()).replace("\n", "\n    ")
        area = f"{self._worker}{area_of(record.name):<{_AREA_WIDTH}}"
        line = f"{self._prefix}.{int(record.msecs):03d} {level} {area} {message}"
        if record.exc_info:
            line = f"{line}\n{escape(self.formatException(record.exc_info))}"
        return line


class JsonFormatter(logging.Formatter):
    """One object per line: time (UTC), level, worker where there are several, area, message and, after a failure,
    exception."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            **self._worker,
            "area": area_of(record.name),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


class _Event:
    __slots__ = ("level", "message", "next_at", "suppressed")

    def __init__(self, level: int, message: str, next_at: float) -> None:
        self.level = level
        self.message = message
        self.next_at = next_at
        self.suppressed = 0


class RateLimitedLog:
    """At most one line per key in `interval_seconds`, and at most `max_lines` lines of all keys.

    The count of lines left out is logged as `suppressed n similar`, with the next line of that key, or by `flush`,
    which the broker calls now and then.  At most `max_keys` keys are remembered; the one not seen for longest is
    forgotten, after its count was logged.  So keys may contain what clients send.
    """

    def __init__(
        self,
        logger: logging.Logger,
        interval_seconds: float = 10.0,
        *,
        max_keys: int = 1024,
        max_lines: int = 64,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._interval = interval_seconds
        self._max_keys = max_keys
        self._max_lines = max_lines
        self._lines = 0
        self._lines_until = 0.0
        self._others = 0
        self._monotonic = monotonic
        self._events: OrderedDict[object, _Event] = OrderedDict()

    def warning(self, key: object, message: str, *args: object) -> None:
        """Log a warning, unless one with this key was logged within the interval."""
        self.log(logging.WARNING, key, message, *args)

    def info(self, key: object, message: str, *args: object) -> None:
        """Log at INFO, unless a line with this key was logged within the interval."""
        self.log(logging.INFO, key, message, *args)

    def error(self, key: object, message: str, *args: object) -> None:
        """Log an error, unless one with this key was logged within the interval."""
        self.log(logging.ERROR, key, message, *args)

    def log(self, level: int, key: object, message: str, *args: object) -> None:
        """Log at `level`, unless a line with this key was logged within the interval."""
        now = self._monotonic()
        event = self._events.get(key)
        if event is not None and now < event.next_at:
            event.suppressed += 1
            self._events.move_to_end(key)
            return
        if not self._may_write(now):
            return
        text = message % args if args else message
        suppressed = event.suppressed if event is not None else 0
        self._events[key] = _Event(level, text, now + self._interval)
        self._events.move_to_end(key)
        if suppressed:
            self._logger.log(level, "%s (suppressed %d similar)", text, suppressed)
        else:
            self._logger.log(level, "%s", text)
        while len(self._events) > self._max_keys:
            _, oldest = self._events.popitem(last=False)
            self._tell(oldest)

    def _may_write(self, now: float) -> bool:
        """Count a line; False when the interval has had `max_lines`, which is then counted instead."""
        if now >= self._lines_until:
            self._lines, self._lines_until = 0, now + self._interval
        if self._lines == self._max_lines:
            self._others += 1
            return False
        self._lines += 1
        return True

    def flush(self, *, everything: bool = False) -> None:
        """Tell the counts of keys whose interval is over (`everything`: of all) and forget those keys."""
        now = self._monotonic()
        if self._others and (everything or now >= self._lines_until):
            self._logger.warning(
                "suppressed %d messages: over %d different ones in %g s", self._others, self._max_lines, self._interval
            )
            self._others = 0
        for key in [key for key, event in self._events.items() if everything or now >= event.next_at]:
            self._tell(self._events.pop(key))

    def _tell(self, event: _Event) -> None:
        if event.suppressed:
            self._logger.log(event.level, "suppressed %d similar to: %s", event.suppressed, event.message)


class _Place:
    __slots__ = ("last", "left", "next_at", "suppressed")

    def __init__(self, left: int, next_at: float) -> None:
        self.left = left
        self.next_at = next_at
        self.suppressed = 0
        self.last = ("", 0, "")
        """Logger, level and text of what was left out last."""


class PlaceLimit(logging.Filter):
    """Lets through `burst` warnings or errors of one place in the code at once, then one in each `interval_seconds`,
    with a count of those left out.

    After an interval without such a line the place has its whole burst again.  What `RateLimitedLog` writes has its own
    limit.
    """

    def __init__(
        self, burst: int = 50, interval_seconds: float = 10.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._burst = burst
        self._interval = interval_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._places: dict[tuple[str, int], _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        if record.levelno < logging.WARNING or record.pathname == __file__:
            return True
        now = self._monotonic()
        with self._lock:
            place = self._places.get((record.pathname, record.lineno))
            if place is None or (now >= place.next_at and not place.suppressed):
                place = self._places[record.pathname, record.lineno] = _Place(self._burst, now + self._interval)
            if place.left:
                place.left -= 1
                place.next_at = now + self._interval
                return True
            if now < place.next_at:
                place.suppressed += 1
                place.last = record.name, record.levelno, record.getMessage()
                return False
            suppressed, place.suppressed = place.suppressed, 0
            place.next_at = now + self._interval
        record.msg, record.args = f"{record.getMessage()} (suppressed {suppressed} similar)", ()
        return True

    def flush(self) -> None:
        """Tells what was left out of places that have been quiet since."""
        now = self._monotonic()
        with self._lock:
            over = [each for each in self._places.values() if each.suppressed and now >= each.next_at]
            named = [(each, each.suppressed) for each in over]
            for place in over:
                place.suppressed = 0
        for place, suppressed in named:
            name, level, text = place.last
            logging.getLogger(name).log(level, "suppressed %d similar to: %s", suppressed, text)


def log_suppressed() -> None:
    """Tell what the limit of every place has left out (`setup`); the broker calls it now and then."""
    for handler in logging.getLogger().handlers:
        for each in handler.filters:
            if isinstance(each, PlaceLimit):
                each.flush()
