"""A running kbroker's metrics listener, asked over HTTP."""

from __future__ import annotations

import json

import click

from kbroker.authorities import trusting
from kbroker.types import JsonObject

NOT_FOUND = 404
UNAUTHORIZED = 401


def _without_proof(address: str) -> tuple[str, str]:
    """The address without the user in it, and what the header Authorization says of that."""
    from base64 import b64encode
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(address)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return address, ""
    name, _, secret = user.partition(":")
    proof = f"Bearer {unquote(secret)}"
    if name:
        proof = "Basic " + b64encode(f"{unquote(name)}:{unquote(secret)}".encode()).decode()
    return parts._replace(netloc=host).geturl(), proof


class NotThereError(click.ClickException):
    """The listener has no such page."""


class MetricsListener:
    """`address`: `http://host:port`, or `host:port`.

    `https://user:password@host:port` proves the user, `https://:token@host:port` is a bearer's proof.  Certificates are
    those that the system trusts, or those of SSL_CERT_FILE.
    """

    def __init__(self, address: str, timeout: float) -> None:
        self.address, self._proof = _without_proof((address if "//" in address else f"http://{address}").rstrip("/"))
        self._timeout = timeout

    def text(self, path: str) -> str:
        """A page as text; `path` may have a query.

        ClickException when the listener does not answer, NotThereError when it has no such page.
        """
        return self._body(path, "text/plain").decode("utf-8", "replace")

    def json(self, path: str) -> JsonObject:
        """A page that is a JSON object.  ClickException when it is none, or as of `text`."""
        try:
            value = json.loads(self._body(path, "application/json"))
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise click.ClickException(
                f"{self.address} is no metrics listener of kbroker: its answer is no JSON object"
            )
        return value

    def _body(self, path: str, accept: str) -> bytes:
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.parse import quote, urlsplit
        from urllib.request import Request, urlopen

        parts = urlsplit(self.address)
        try:
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # The port is no number, or more than 65535.
            known = False
        if not known:
            raise click.UsageError(f"--metrics {self.address}: must be http(s)://host:port, with a port of 1 to 65535")
        headers = {"Accept": accept, **({"Authorization": self._proof} if self._proof else {})}
        context = trusting() if parts.scheme == "https" else None
        request = Request(f"{self.address}{quote(path, safe='/?&=')}", headers=headers)
        try:
            with urlopen(request, timeout=self._timeout, context=context) as answer:
                body: bytes = answer.read()
        except HTTPError as error:
            with error:
                refusal = self._refusal(error.code, error.read())
            if error.code == UNAUTHORIZED:
                raise click.ClickException(
                    f"{self.address} wants to know who asks: --metrics https://user:password@host:port "
                    "(kbroker.metrics.authentication)"
                ) from None
            raise (NotThereError if error.code == NOT_FOUND else click.ClickException)(refusal) from None
        except URLError as error:
            raise click.ClickException(self._unreachable(error.reason)) from None
        except (OSError, HTTPException) as error:
            raise click.ClickException(self._unreachable(error)) from None
        return body

    def _refusal(self, status: int, body: bytes) -> str:
        try:
            return str(json.loads(body)["error"])
        except (ValueError, KeyError, TypeError):
            return f"{self.address} has no page about logs (HTTP status {status}): is it a kbroker of this version?"

    def _unreachable(self, reason: object) -> str:
        text = getattr(reason, "strerror", None) or reason
        return (
            f"cannot reach a metrics listener at {self.address} ({text}). Is the broker running, and metrics.listener "
            "this address and not none? `kbroker logs list -b HOST:PORT` asks over Kafka's protocol, `--directory` "
            "reads the files of a stopped broker"
        )
