"""The broker that tests start: `kbroker.testing.KafkaBroker` in the directory of a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbroker.testing.broker import BrokerError, KafkaBroker, answers_api_versions
from kbroker.testing.security import Security

__all__ = ["BrokerError", "BrokerProcess", "answers_api_versions"]


class BrokerProcess(KafkaBroker):
    """One kbroker process and its directory, which stays."""

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        port: int | None = None,
        security: Security | None = None,
    ) -> None:
        super().__init__(directory, overrides, environ=environ, port=port, security=security)
