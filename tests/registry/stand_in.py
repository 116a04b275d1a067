"""A schema registry in memory: those paths and answers of Confluent's API by which clients register and look up."""

from __future__ import annotations

import base64
import json
import ssl
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

UNKNOWN_SUBJECT, UNKNOWN_SCHEMA = 40401, 40403


class StandIn:
    """`asked` are the paths so far.  With `status` every request is answered so; `user_info` is asked of clients."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.status = 0
        self.user_info = ""
        self.url = ""
        self.gate = threading.Event()
        self.gate.set()

    def add(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Register; the id, which equal schemas share."""
        made = {"schema": schema, "schemaType": kind, "references": list(references)}
        if made not in self.schemas:
            self.schemas.append(made)
        number = self.schemas.index(made) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def guid(self, number: int) -> str:
        """The GUID of a schema."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, str(number)))

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and content."""
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                if not 0 < int(number) <= len(self.schemas):
                    return 404, {"error_code": UNKNOWN_SCHEMA, "message": "Schema not found"}
                return 200, self.shown(int(number))
            case ["schemas", "guids", guid]:
                found = [index for index in range(1, len(self.schemas) + 1) if self.guid(index) == guid]
                return (200, self.shown(found[0])) if found else (404, {"error_code": UNKNOWN_SCHEMA})
            case ["subjects"]:
                return 200, list(self.subjects)
            case ["subjects", subject, "versions"] if body is None and subject in self.subjects:
                return 200, list(range(1, len(self.subjects[subject]) + 1))
            case ["subjects", subject, "versions"] if body is not None:
                made = self.add(subject, body["schema"], body.get("schemaType", "AVRO"), body.get("references") or ())
                return 200, {"id": made, "guid": self.guid(made)}
            case ["subjects", subject] if body is not None:
                return self.version(subject, body)
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                numbers = self.subjects[subject]
                index = len(numbers) if version == "latest" else int(version)
                there = numbers[index - 1]
                return 200, {**self.shown(there), "subject": subject, "version": index, "id": there}
            case _:
                return 404, {"error_code": UNKNOWN_SUBJECT, "message": "Subject not found"}

    def version(self, subject: str, body: Any) -> tuple[int, Any]:
        """A schema's place under a subject."""
        for index, number in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[number - 1]["schema"] == body["schema"]:
                return 200, {**self.shown(number), "subject": subject, "version": index, "id": number}
        return 404, {"error_code": UNKNOWN_SCHEMA, "message": "Schema not found"}

    def shown(self, number: int) -> dict[str, Any]:
        """A schema as answers have it; Avro's type is left out, as registries do."""
        made = dict(self.schemas[number - 1])
        if made["schemaType"] == "AVRO":
            del made["schemaType"]
        return {**made, "guid": self.guid(number)}


@contextmanager
def stand_in(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[StandIn]:
    """One that answers on loopback; with `tls` over TLS."""
    registry = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve(None)

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _serve(self, body: Any) -> None:
            registry.asked.append(self.path)
            registry.gate.wait()
            wanted = "Basic " + base64.b64encode(registry.user_info.encode()).decode()
            if registry.status:
                status, content = registry.status, {"error_code": registry.status}
            elif registry.user_info and self.headers.get("Authorization") != wanted:
                status, content = 401, {"error_code": 401}
            else:
                status, content = registry.answer(self.path, body)
            data = json.dumps(content).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", registry.url + "/elsewhere")
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield registry
    finally:
        registry.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    with stand_in(int(sys.argv[1])) as served:
        served.add(sys.argv[2], sys.argv[3])
        threading.Event().wait()
