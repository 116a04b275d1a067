"""How commands speak Kafka's protocol themselves, for what librdkafka does not do: one place for how they connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbroker.cli.output import parse_pairs
from kbroker.cli.profile_option import merged_settings

if TYPE_CHECKING:
    from kbroker.client.cluster import ClientSettings


def wire_settings(timeout: float) -> ClientSettings:
    """The settings of a command's connections; `timeout` in seconds bounds each step.

    Security is that of the profile, `--command-config` and `-X`.  UsageError where it makes no connection.
    """
    from kbroker.client.cluster import ClientSettings
    from kbroker.security.client.client_security import ClientSecurityError
    from kbroker.security.client.librdkafka_settings import librdkafka_security

    given = click.get_current_context().params.get("client_settings") or ()
    try:
        security = librdkafka_security(merged_settings(parse_pairs(given, "-X")))
    except ClientSecurityError as error:
        raise click.UsageError(str(error)) from None
    return ClientSettings(
        client_id="kbroker-cli",
        connect_timeout_s=timeout,
        request_timeout_s=timeout,
        patience_s=timeout,
        security=security,
    )
