"""`kbroker certificates`: which certificates listeners show, and when they run out."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kbroker.cli.output import json_option, print_json, print_table
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from cryptography import x509

DAY_SECONDS = 86_400
TIMEOUT_SECONDS = 10


@click.command("certificates")
@click.argument("addresses", nargs=-1, metavar="[HOST:PORT]...")
@click.option("--properties", type=click.Path(exists=True, dir_okay=False), help="A broker's server.properties.")
@click.option("--within", default=0, metavar="DAYS", help="Exit with 1 if one runs out within so many days.")
@json_option
def command(addresses: tuple[str, ...], properties: str | None, within: int, as_json: bool) -> int:
    """Show the certificates of listeners, by connecting to them or by reading a broker's stores.

    Of a store, the issuers of the certificate are shown, too.
    Nothing is verified: this says what a client would be shown.
    """
    if not addresses and properties is None:
        raise click.UsageError("give HOST:PORT of a listener under TLS, or --properties of a broker")
    rows = [_row(where, each) for where, each in (*_of_addresses(addresses), *_of_stores(properties))]
    if as_json:
        print_json({"certificates": rows})
    else:
        heads = ("WHERE", "SUBJECT", "HOSTS", "ISSUER", "VALID UNTIL", "DAYS LEFT")
        print_table(heads, [tuple(str(row[key]) for key in _KEYS) for row in rows])
    return 1 if any(float(str(row["days_left"])) < within for row in rows) else 0


_KEYS = ("where", "subject", "hosts", "issuer", "valid_until", "days_left")


def _row(where: str, certificate: x509.Certificate) -> JsonObject:
    from kbroker.security.tls.continuity import alternative_names
    from kbroker.security.tls.distinguished_name import java_name

    left = certificate.not_valid_after_utc.timestamp() - time.time()
    return {
        "where": where,
        "subject": java_name(certificate.subject.public_bytes()),
        "hosts": ", ".join(sorted(alternative_names(certificate))),
        "issuer": java_name(certificate.issuer.public_bytes()),
        "valid_until": f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
        "days_left": round(left / DAY_SECONDS, 1),
    }


def _of_addresses(addresses: tuple[str, ...]) -> Iterator[tuple[str, x509.Certificate]]:
    from cryptography import x509

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise click.UsageError(f"{address} is not HOST:PORT")
        host = host.strip("[]")
        try:
            with (
                socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname=host) as wrapped,
            ):
                shown = wrapped.getpeercert(binary_form=True)
        except (OSError, ssl.SSLError) as error:
            raise click.ClickException(f"{address}: {error}") from None
        if shown is not None:
            yield address, x509.load_der_x509_certificate(shown)


def _of_stores(properties: str | None) -> Iterator[tuple[str, x509.Certificate]]:
    from kbroker.config import BrokerConfig, ConfigError
    from kbroker.security.protocols import has_tls
    from kbroker.security.tls.settings import TlsError, listener_tls_settings
    from kbroker.security.tls.stores import read_keys

    if properties is None:
        return
    try:
        config = BrokerConfig.load(properties)
        for listener in config.listeners:
            if has_tls(listener.protocol):
                for entry in read_keys(listener_tls_settings(config, listener.name, listener.protocol).key_store):
                    for certificate in entry.chain:
                        yield listener.name, certificate
    except (ConfigError, TlsError) as error:
        raise click.ClickException(str(error)) from None
