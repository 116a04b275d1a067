"""A program that asks a console over HTTP, and changes things with it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.compat.waiting import wait_for

STRANGE = "<img src=x onerror=alert(1)>"


def place_of(step: str, action: str) -> str:
    """Where an action is planned or performed: records, which may be large, have a place of their own."""
    return f"{step}/produce" if action == "produce" else step


class Answered(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """What the JSON says."""
        return json.loads(self.body)


class Viewer:
    """Asks the console of one broker."""

    def __init__(self, port: int, user: str = "", root: str = "/console") -> None:
        """`user`: name and password, with a colon between them; `root`: where the console is."""
        self.port = port
        self.root = root
        self.proof = {"Authorization": f"Basic {b64encode(user.encode()).decode()}"} if user else {}

    def get(self, path: str, **headers: str) -> Answered:
        """The answer to one request; `Host` is the listener's address unless it is given."""
        return self.send("GET", path, b"", **headers)

    def post(self, name: str, value: object, **headers: str) -> Answered:
        """The answer to JSON, as the console's pages send it; headers stand in the place of those of the same name."""
        sent = {"Content_Type": "application/json", "X_Kbroker_Console": "1", **headers}
        return self.send("POST", f"{self.root}/api/{name}", json.dumps(value).encode(), **sent)

    def plan(self, action: str, /, *, secret: str = "", **fields: object) -> Any:
        """What an action would do; it has to be possible."""
        answer = self.post(place_of("plan", action), {"action": action, "fields": fields, "secret": secret})
        assert answer.status == 200, answer.body
        return answer.value

    def perform(self, plan: Any, secret: str = "") -> Any:
        """Do what a plan says; it has to succeed."""
        answer = self.post(place_of("perform", plan["action"]), {**plan, "secret": secret})
        assert answer.status == 200, answer.body
        return answer.value

    def do(self, action: str, /, *, secret: str = "", **fields: object) -> Any:
        """Plan and perform."""
        return self.perform(self.plan(action, secret=secret, **fields), secret)

    def cannot(self, action: str, /, *, secret: str = "", **fields: object) -> tuple[int, str, str]:
        """Status, code and sentence of an action that cannot be planned."""
        answer = self.post(place_of("plan", action), {"action": action, "fields": fields, "secret": secret})
        assert answer.status != 200, answer.body
        return answer.status, answer.value.get("code", ""), answer.value["error"]

    def send(self, method: str, path: str, body: bytes, **headers: str) -> Answered:
        """The answer to one request."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=100)
        try:
            named = {name.replace("_", "-"): value for name, value in {**self.proof, **headers}.items()}
            if body:
                named.setdefault("Content-Length", str(len(body)))
            connection.putrequest(method, path, skip_host="Host" in named, skip_accept_encoding=True)
            for name, value in named.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return Answered(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def ask(self, name: str, /, **fields: object) -> Any:
        """What an endpoint says; it has to answer 200."""
        answer = self.get(f"{self.root}/api/{name}?{urlencode(fields)}")
        assert answer.status == 200, (name, fields, answer.status, answer.body)
        return answer.value

    def wait(self, name: str, condition: Callable[[Any], object], /, **fields: object) -> Any:
        """What an endpoint says once the condition holds: what viewers share is some seconds old."""

        def holds() -> tuple[Any] | None:
            value = self.ask(name, **fields)
            return (value,) if condition(value) else None

        (value,) = wait_for(holds, f"{name} {fields}", seconds=120, every=0.05)
        return value

    def refused(self, name: str, /, **fields: object) -> tuple[int, str]:
        """The status and the sentence of an endpoint that does not give what is asked for."""
        answer = self.get(f"{self.root}/api/{name}?{urlencode(fields)}")
        assert answer.status != 200, (name, fields)
        return answer.status, answer.value["error"]
