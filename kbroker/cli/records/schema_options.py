"""Options for commands that show records decoded, and such records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from kbroker.cli.security.secret_input import read_secret, secret_option

if TYPE_CHECKING:
    from kbroker.registry.display import Display, Shown

F = TypeVar("F", bound=Callable[..., object])

MOST_COMPLAINTS = 20


def schema_options(function: F) -> F:
    """Adds the options; the command gets `display`, None where none of them is given."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)

    @click.option("--schema-registry", metavar="URL", help="Decode records by the schemas of this registry.")
    @click.option("--schema-registry-user", metavar="USER", help="Who to be at the registry.")
    @secret_option("--schema-registry-password", "the user's password at the registry")
    @click.option("--schema-registry-ca", type=file, help="PEM of the authorities to trust; the system's without.")
    @click.option("--key-schema", type=file, help="Decode keys by this schema: .avsc, .proto or .json.")
    @click.option("--value-schema", type=file, help="Decode values by this schema: .avsc, .proto or .json.")
    @functools.wraps(function)
    def wrapped(
        *args: object,
        schema_registry: str | None,
        schema_registry_user: str | None,
        schema_registry_password: Path | None,
        schema_registry_ca: Path | None,
        key_schema: Path | None,
        value_schema: Path | None,
        **values: object,
    ) -> object:
        if schema_registry is None and (schema_registry_user or schema_registry_password or schema_registry_ca):
            raise click.UsageError("options of a registry go with --schema-registry")
        files = {True: key_schema, False: value_schema}
        display = None
        if schema_registry is not None or any(files.values()):
            password = None
            if schema_registry_user is not None:
                password = read_secret(schema_registry_password, "the user's password at the registry")
            display = _make(schema_registry, schema_registry_user, password, schema_registry_ca, files)
        return function(*args, display=display, **values)

    return wrapped  # type: ignore[return-value]


def _make(
    url: str | None, user: str | None, password: str | None, ca: Path | None, files: dict[bool, Path | None]
) -> Display:
    from kbroker.registry.client import RegistryPlace
    from kbroker.registry.display import Display
    from kbroker.registry.schema_files import Files, kind_of

    place = None
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise click.UsageError(f"--schema-registry {url}: must be an http:// or https:// URL")
        place = RegistryPlace((url,), f"{user}:{password}" if user is not None else "", str(ca or ""))
    found: Files = {}
    for is_key, path in files.items():
        if path is None:
            continue
        try:
            kind_of(path)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        found["", is_key] = path
    return Display(place, found)


class ClientRecord(Protocol):
    """What is asked of a record of the client."""

    def topic(self) -> str | None:
        """Its topic."""

    def partition(self) -> int | None:
        """Its partition."""

    def offset(self) -> int | None:
        """Its offset."""

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Its headers, None where there is none."""

    def key(self) -> bytes | None:
        """Its key."""

    def value(self) -> bytes | None:
        """Its value."""


class ReadMessage:
    """A record of the client with key and value as JSON where they can be decoded, as they came where not."""

    def __init__(self, message: ClientRecord, display: Display) -> None:
        self.message = message
        topic, headers = str(message.topic()), message.headers() or []
        self.shown_key = display.show(topic, message.key(), headers, is_key=True)
        self.shown_value = display.show(topic, message.value(), headers, is_key=False)

    def __getattr__(self, name: str) -> object:
        return getattr(self.message, name)

    def key(self) -> bytes | None:
        """The key's JSON, or the key."""
        return _bytes(self.shown_key, self.message.key())

    def value(self) -> bytes | None:
        """The value's JSON, or the value."""
        return _bytes(self.shown_value, self.message.value())


def _bytes(shown: Shown | None, data: bytes | None) -> bytes | None:
    return shown.text.encode() if shown is not None and shown.is_decoded else data


class Complaints:
    """Says on stderr, once for each reason, why keys and values are not decoded."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def about(self, read: ReadMessage) -> None:
        """Of one record."""
        for side, shown in (("key", read.shown_key), ("value", read.shown_value)):
            if shown is None or not shown.problem or shown.problem in self._said:
                continue
            if len(self._said) >= MOST_COMPLAINTS:
                return
            self._said.add(shown.problem)
            place = f"{read.message.topic()}-{read.message.partition()} offset {read.message.offset()}"
            click.echo(f"{place}: the {side}: {shown.problem}", err=True)
