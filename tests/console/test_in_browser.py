"""The console in a real browser, clicked through as a person would.

Also of `kbroker.console.clients`, `kbroker.console.connection_lines`, `kbroker.console.settings`,
`kbroker.console.transactions`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.console.browser import DESKTOP, PHONE, Window, opened_window
from tests.console.group_pages import joined
from tests.console.viewer import STRANGE
from tests.registry.stand_in import stand_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ORDER = {"id": 7, "big": 12345678901234567890, "lines": [{"sku": "A-1", "paid": True}, {}], "note": None}
ORDER_SCHEMA: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
PAGES = (
    "#/",
    "#/topics",
    "#/topic?name=shop",
    "#/partition?name=shop&partition=0",
    "#/messages?topic=shop&partition=0",
    "#/statistics?topic=shop",
    "#/groups",
    "#/group?id=browsed",
    "#/clients",
    "#/transactions",
    "#/settings",
    "#/why",
    "#/brokers",
    "#/clusters",
    "#/users",
    "#/acls",
    "#/quotas",
)


@pytest.fixture(scope="module")
def shop(console_broker: BrokerProcess) -> Iterator[Producer]:
    """A topic with an order and a record of a producer with bad intent, and a group that reads it."""
    console_broker.create_topic("shop", 3)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap, "log_level": 0})
    headers = [("trace", b"\x01\xff"), (STRANGE, STRANGE)]
    producer.produce("shop", json.dumps(ORDER), "order 7", partition=0, headers=headers)
    producer.produce("shop", STRANGE, STRANGE, partition=0)
    producer.produce("shop", b"\x00\x01\x02", partition=0)
    assert producer.flush(30) == 0
    consumer = joined(console_broker, "browsed", "shop", "consumer")
    yield producer
    consumer.close()


@pytest.fixture(scope="module")
def window(console_broker: BrokerProcess, shop: Producer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """A browser at desktop size."""
    with opened_window(console_broker.metrics_url, tmp_path_factory.mktemp("profile")) as window:
        yield window


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("place", PAGES)
def test_every_page_is_whole_and_asks_no_other_host(window: Window, place: str, size: tuple[int, int]) -> None:
    """A page would be blank, wider than the screen, or tell a stranger who looks at it."""
    window.size(*size)
    window.faults()
    window.asked()
    window.go(place)
    assert window.run("return document.scrollingElement.scrollWidth <= innerWidth"), "wider than the screen"
    assert window.get("nav a[aria-current=page]") and not window.find("#notice .is-bad")
    assert window.faults() == []
    assert window.asked() == {window.address.removeprefix("http://")}
    window.size(*DESKTOP)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PAGES)
def test_every_page_can_be_used_by_everybody(window: Window, place: str, scheme: str) -> None:
    """People who use a screen reader or a keyboard, or see little, could not use it."""
    window.scheme(scheme)
    window.go(place)
    assert window.violations() == []
    window.scheme("light")


def test_a_topic_is_found_and_its_records_are_read(window: Window) -> None:
    """The way that most people take would be broken."""
    window.go("#/topics")
    window.get("#search").send_keys("sho")
    window.wait(lambda: "q=sho" in window.driver.current_url)
    window.click("td a", "shop")
    window.get("h1", "shop")
    window.click("a.button", "Messages")
    window.click("tr.record", "order 7")
    shown = window.get("tr.more pre", '"sku"')
    assert json.loads(shown.text) == ORDER and "12345678901234567890" in shown.text
    assert '\n  "lines": [\n    {\n      "sku": "A-1",' in shown.text and window.get("tr.more", "01 ff")
    window.click("tr.record", "order 7")
    window.wait(lambda: not window.find("tr.more"))


def test_records_and_names_are_never_markup(window: Window) -> None:
    """A producer could run scripts in the browser of everybody who looks at its records."""
    window.go("#/messages?topic=shop&partition=0")
    for row in ("order 7", STRANGE):
        window.click("tr.record", row)
    window.get("tr.more pre", STRANGE)
    assert window.get("tr.more td.name", STRANGE)
    assert window.run("return document.querySelectorAll('#page img, #page script').length") == 0
    window.go(f"#/topic?name={STRANGE}")
    assert window.get("#page p", STRANGE) and not window.find("#page img")


def test_a_live_tail_shows_what_comes_and_pauses(window: Window, shop: Producer) -> None:
    """A person who waits for a record would not see it, or could not read it before the next."""
    window.go("#/messages?topic=shop&tail=1")
    window.get("#page", "Waiting for records")
    shop.produce("shop", "first", partition=1)
    assert shop.flush(30) == 0
    window.get("tr.record", "first")
    window.keys(" ")
    window.get("#tail[aria-pressed=true]", "Go on")
    shop.produce("shop", "second", partition=2)
    assert shop.flush(30) == 0
    # Two looks of the page later the record would be there, were it not paused.
    for _ in range(2):
        before = window.run("return performance.now()")
        window.wait(lambda since=before: window.run("return performance.now()") > since + 1100)
    assert not window.find("tr.record", "second")
    window.keys(" ")
    window.get("tr.record", "second")


def test_the_keyboard_is_enough(window: Window) -> None:
    """People without a mouse could not get anywhere."""
    window.go("#/")
    window.keys("?")
    assert window.get("dialog[open] h2", "Keys")
    window.get("dialog[open] button").click()
    window.wait(lambda: not window.find("dialog[open]"))
    window.run("document.activeElement.blur()")
    window.keys("gt")
    window.get("h1", "Topics")
    window.keys("/plain")
    window.wait(lambda: window.run("return document.activeElement.id") == "search")
    window.wait(lambda: len(window.driver.find_elements("css selector", "tbody tr")) == 1)
    window.go("#/")
    window.keys("\ue004")
    assert window.run("return document.activeElement.className") == "skip"
    window.keys("\ue007")
    window.wait(lambda: window.run("return document.activeElement.id") == "main")


def test_light_and_dark_are_chosen(window: Window) -> None:
    """A person whose system is dark could not read the console in the sun."""
    ground = "return getComputedStyle(document.body).backgroundColor"
    window.scheme("dark")
    window.go("#/")
    dark = window.run(ground)
    window.get("#theme option[value=light]").click()
    light = window.run(ground)
    assert light != dark and window.violations() == []
    window.go("#/topics")
    assert window.run(ground) == light and window.get("#theme").get_property("value") == "light"
    window.scheme("light")
    window.get("#theme option[value=dark]").click()
    assert window.run(ground) == dark and window.violations() == []
    window.get("#theme option[value=system]").click()
    assert window.run(ground) == light


def test_the_charts_begin_before_the_look(window: Window) -> None:
    """Charts would be empty for a person who comes after a fault."""
    window.run("sessionStorage.clear()")
    window.go("#/")
    told = window.run("return fetch('api/past').then((answer) => answer.json())")
    assert told["rows"] and told["rows"][0][0] > 0
    window.wait(lambda: window.find(".chart canvas"))


def test_a_broker_that_goes_away_is_told_and_its_return_seen(window: Window, console_broker: BrokerProcess) -> None:
    """A person would take old figures for those of now, or have to load the page anew."""
    window.go("#/topics")
    window.get("tbody tr", "shop")
    console_broker.kill()
    window.get("#notice .is-bad", "does not answer")
    assert window.find("#page.stale") and window.find("tbody tr", "shop")
    console_broker.start()
    window.wait(lambda: not window.find("#notice .is-bad") and not window.find("#page.stale"))
    window.faults()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_schemas_are_seen_compared_and_used(window: Window, tmp_path: Path, size: tuple[int, int]) -> None:
    """A person could not see by which schema a producer writes, or send a record of it for a trial."""
    pytest.importorskip("fastavro")
    with stand_in() as registry:
        later = {
            **ORDER_SCHEMA,
            "fields": [*ORDER_SCHEMA["fields"], {"name": "paid", "type": "boolean", "default": False}],
        }
        registry.add("orders-value", json.dumps(ORDER_SCHEMA))
        registry.add("orders-value", json.dumps(later))
        settings = {"kbroker.schema.registry.url": registry.url, "kbroker.console.manage": "true"}
        with BrokerProcess(tmp_path, settings) as broker:
            broker.create_topic("orders", 1)
            own = Window(window.driver, broker.metrics_url)
            own.size(*size)
            own.go("#/schemas")
            assert own.violations() == []
            own.click("td a", "orders-value")
            assert '"paid"' in own.get("pre .added", "paid").text
            assert own.violations() == [] and own.run("return document.scrollingElement.scrollWidth <= innerWidth")
            own.get("#version option[value='1']").click()
            own.wait(lambda: not own.find("pre .added"))
            own.go("#/messages?topic=orders")
            own.click("button", "Produce")
            own.get("#field-format option[value=schema]").click()
            own.get("#field-value").send_keys('{"id": 7}')
            own.click("#action button[type=submit]", "Show what happens")
            own.get("#action li", "Each value is written by schema 2.")
            own.click("#perform")
            own.get("#action .good", "1 record is written.")
            own.click("#close")
            assert own.get("tr.record", '"id": 7')
            own.size(*DESKTOP)
    window.faults()
