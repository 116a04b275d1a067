"""Where there is a console, and what its settings mean.

Also of `kbroker.console.overview`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kbroker.assembly.console import Console
from kbroker.config import BrokerConfig
from kbroker.metrics import Readiness
from kbroker.metrics.http_messages import Request
from tests.metrics.http_exchange import sources

ASKED = Request("GET", "/console/", "", "", False, True, "127.0.0.1")


def console(**settings: str) -> Console:
    """Of a broker with these settings that is not ready."""
    overrides = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    config = BrokerConfig.load(None, overrides, {})
    absent: Any = None
    return Console(config, sources(), Readiness(), lambda: absent, [], None, absent)


def test_the_console_can_be_turned_off() -> None:
    """A broker that must show nothing would show everything."""
    assert list(console().sites()) == ["console"]
    assert not console(kbroker_console_enable="false").sites()


def test_a_listener_and_names_of_the_settings_lead_to_it() -> None:
    """A console behind a proxy could not be reached, or one under any name."""

    async def scenario() -> None:
        site = console(metrics_listener="http://broker.lan:9644", kbroker_console_hosts="Kafka.example,other")
        for host, status in (
            ("broker.lan:9644", 200),
            ("kafka.example", 200),
            ("OTHER:80", 200),
            ("evil.example", 421),
        ):
            assert (await site(ASKED._replace(host=host))).status == status

    asyncio.run(scenario())


def test_a_broker_that_is_not_ready_shows_its_pages_and_says_so() -> None:
    """A person who looks while a long recovery runs would see an empty page."""

    async def scenario() -> None:
        site = console()
        assert (await site(ASKED)).status == 200
        answer = await site(ASKED._replace(path="/console/api/overview"))
        assert answer.status == 503 and json.loads(answer.body) == {"error": "the broker is starting"}

    asyncio.run(scenario())
