"""The options of security, those of Kafka's Java clients: `kafka.security.protocol`, `kafka.ssl.*`, `kafka.sasl.*`.

Files that they name have to be where tasks run.
"""

from __future__ import annotations

from kbroker.replay.sources.option_values import OptionError, OptionValues
from kbroker.security.client.client_security import ClientSecurity, ClientSecurityError
from kbroker.security.client.java_settings import PREFIXES, java_security

KAFKA = "kafka."


def security_names(values: OptionValues) -> tuple[str, ...]:
    """The names of those that are given."""
    return tuple(name for name in values.names() if name.removeprefix(KAFKA).startswith(PREFIXES))


def parse_security(values: OptionValues) -> ClientSecurity:
    """The security of connections.  OptionError."""
    settings = {name.removeprefix(KAFKA): values.text(name) or "" for name in security_names(values)}
    try:
        return java_security(settings)
    except ClientSecurityError as error:
        raise OptionError(f"options kafka.security.*, kafka.ssl.*, kafka.sasl.*: {error}") from None
