"""Commands at a metrics listener that takes a proof of the viewer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import click
import pytest

from kbroker.cli.metrics_listener import MetricsListener


class Guarded(BaseHTTPRequestHandler):
    """Shows the proof that it was given, and nothing without one."""

    def do_GET(self) -> None:
        proof = self.headers.get("Authorization", "")
        self.send_response(200 if proof else 401)
        self.end_headers()
        self.wfile.write(f"{self.headers['Host']} {proof}".encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Guarded)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("user", "proof"),
    [("alice:in%20wonder%3Aland", "Basic YWxpY2U6aW4gd29uZGVyOmxhbmQ="), (":t0ken", "Bearer t0ken")],
)
def test_the_user_in_the_address_is_the_proof(port: int, user: str, proof: str) -> None:
    """`kbroker top` could not be used on a broker with security."""
    listener = MetricsListener(f"http://{user}@127.0.0.1:{port}", 10)
    assert listener.text("/metrics") == f"127.0.0.1:{port} {proof}"
    assert user not in listener.address


def test_a_listener_that_wants_a_proof_is_told_from_one_that_is_no_kbroker(port: int) -> None:
    """A person would look for another version in place of a password."""
    with pytest.raises(click.ClickException, match="wants to know who asks"):
        MetricsListener(f"127.0.0.1:{port}", 10).text("/metrics")
