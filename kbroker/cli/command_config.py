"""`--command-config` of the commands: a file with settings of Kafka's or of librdkafka's clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

_KEY = "kbroker.command-config"
# What Kafka's clients have and librdkafka has not, or as something else: where one of them is there, all are Kafka's.
_JAVA = ("sasl.jaas.config", "ssl.truststore.", "ssl.keystore.key", "ssl.keystore.type", "ssl.enabled.protocols")
# Kafka's names of settings that are no security, and librdkafka's.
_OTHERS = {"client.id": "client.id", "client.dns.lookup": "client.dns.lookup"}

F = TypeVar("F", bound=Callable[..., object])


def command_config_option(function: F) -> F:
    """Adds `--command-config`; `command_config_of` gives what it says."""
    option: Callable[[F], F] = click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_read,
        help="A file with settings of the client, as Kafka's tools take it.",
    )
    return option(function)


def _read(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    ctx.meta[_KEY] = {} if path is None else read_command_config(path)


def command_config_of(ctx: click.Context) -> Mapping[str, str]:
    """The settings of the file, in librdkafka's names; none without a file."""
    found: Mapping[str, str] = ctx.meta.get(_KEY, {})
    return found


def read_command_config(path: Path) -> dict[str, str]:
    """The settings of a file in librdkafka's names.  UsageError."""
    from kbroker.config.properties import PropertiesError, decode_properties, parse_properties

    try:
        values = {each.key: each.value for each in parse_properties(decode_properties(path.read_bytes()))}
    except OSError as error:
        raise click.UsageError(f"--command-config {path}: {error.strerror}") from None
    except PropertiesError as error:
        raise click.UsageError(f"--command-config {path}: {error}") from None
    values.pop("bootstrap.servers", None)
    if not any(name.startswith(_JAVA) for name in values):
        return values
    return _translated(path, values)


def _translated(path: Path, values: Mapping[str, str]) -> dict[str, str]:
    from kbroker.security.client.client_security import ClientSecurityError
    from kbroker.security.client.java_settings import PREFIXES, java_security
    from kbroker.security.client.librdkafka_settings import to_librdkafka
    from kbroker.security.tls.settings import TlsError

    for name in values:
        if not name.startswith(PREFIXES) and name not in _OTHERS:
            click.echo(f"--command-config {path}: {name} has no effect here", err=True)
    try:
        settings = to_librdkafka(java_security(values))
    except (ClientSecurityError, TlsError) as error:
        raise click.UsageError(f"--command-config {path}: {error}") from None
    return settings | {_OTHERS[name]: text for name, text in values.items() if name in _OTHERS}
