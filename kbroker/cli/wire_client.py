"""How commands speak Kafka's protocol themselves, for what librdkafka does not do: one place for how they connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.replay.client.cluster import ClientSettings


def wire_settings(timeout: float) -> ClientSettings:
    """The settings of a command's connections; `timeout` in seconds bounds each step.  PLAINTEXT, as yet."""
    from kbroker.replay.client.cluster import ClientSettings

    return ClientSettings(
        client_id="kbroker-cli", connect_timeout_s=timeout, request_timeout_s=timeout, patience_s=timeout
    )
