"""Executors report counts to the driver while they replay, and it can stop them: lines of JSON over TCP.

An executor begins with {"token": …, "executor": n}, to which the driver answers `go`, or `again` when that executor has
begun before: Spark repeats failed stages, but a replay must not be repeated.  Then the executor sends its counts twice
a second; the driver sends `stop` to end the replay early.  Without the channel a replay goes on; only the progress, the
early stop and the check for repetition are lost.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Callable

from kbroker.client.closing import Closing
from kbroker.client.readable import readable

PACE_S = 0.5
_MOST = 1 << 16
Counts = dict[str, int]


class Channel(Closing):
    """The driver's end.  `totals()` sums the latest counts of all executors."""

    def __init__(self, host: str) -> None:
        self.token = secrets.token_hex(16)
        self._server = socket.create_server((host, 0))
        self.address = (host, int(self._server.getsockname()[1]))
        self._stop = threading.Event()
        self._counts: dict[int, Counts] = {}
        self._begun: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, name="replay-channel", daemon=True).start()

    def totals(self) -> Counts:
        """The counts of all executors, added up."""
        totals: Counts = {}
        for counts in list(self._counts.values()):
            for name, number in counts.items():
                totals[name] = totals.get(name, 0) + number
        return totals

    @property
    def executors(self) -> int:
        """How many executors have said something."""
        return len(self._begun)

    def stop(self) -> None:
        """Tells all executors, those that come later too, to send no more."""
        self._stop.set()

    def close(self) -> None:
        """End the listening socket."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        sent_stop = False
        executor: int | None = None
        rest = b""
        with connection, contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            while not self._closed:
                if self._stop.is_set() and not sent_stop:
                    connection.sendall(b"stop\n")
                    sent_stop = True
                if not readable(connection.fileno(), 0.1):
                    continue
                data = connection.recv(_MOST)
                if not data or len(rest) > _MOST:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    if executor is None:
                        if message["token"] != self.token:
                            return
                        executor = int(message["executor"])
                        connection.sendall(b"go\n" if self._begin(executor) else b"again\n")
                    else:
                        self._counts[executor] = {name: int(number) for name, number in message.items()}

    def _begin(self, executor: int) -> bool:
        with self._lock:
            first = executor not in self._begun
            self._begun.add(executor)
            return first


class Reporter:
    """An executor's end: says `counts()` at a steady pace until it is closed; `stopped` when the driver wants the end.

    `repeated` when this executor has begun before.
    """

    def __init__(
        self, address: tuple[str, int] | None, token: str, executor: int, counts: Callable[[], Counts]
    ) -> None:
        self.stopped = self.repeated = False
        self._counts = counts
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if address is None:
            return
        try:
            connection = socket.create_connection(address, timeout=5)
            self._say(connection, {"token": token, "executor": executor})
            self.repeated = connection.recv(_MOST).startswith(b"again")
        except OSError:
            return
        self._thread = threading.Thread(target=self._talk, args=(connection,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send the last counts and end the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(5)

    def _talk(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while not self._ended.is_set():
                self._say(connection, self._counts())
                if self.stopped:
                    self._ended.wait(PACE_S)
                elif readable(connection.fileno(), PACE_S):
                    data = connection.recv(_MOST)
                    if not data:
                        return
                    self.stopped = b"stop" in data
            self._say(connection, self._counts())

    @staticmethod
    def _say(connection: socket.socket, message: object) -> None:
        connection.sendall(json.dumps(message).encode() + b"\n")
