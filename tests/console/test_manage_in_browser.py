"""Changes from the console in a real browser: by mouse, by keyboard alone, on a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbroker.testing.security import Security
from tests.broker_process import BrokerProcess
from tests.console.browser import DESKTOP, PHONE, Window, opened_window
from tests.console.viewer import Viewer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KEYS = "return [...document.querySelectorAll('tr.record td.name')].map((cell) => cell.textContent)"
TAB, ENTER, ESCAPE = "\ue004", "\ue007", "\ue00c"


@pytest.fixture(scope="module")
def window(console_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """A browser at desktop size."""
    with opened_window(console_broker.metrics_url, tmp_path_factory.mktemp("profile")) as window:
        yield window


def type_into(window: Window, name: str, text: str) -> None:
    """Replace what stands in an input of the form."""
    field = window.get(f"#field-{name}")
    field.clear()
    field.send_keys(text)


def choose(window: Window, name: str, value: str) -> None:
    """Choose an option of a select."""
    window.get(f"#field-{name} option[value='{value}']").click()


def go_on(window: Window, title: str) -> None:
    """From the form to the plan."""
    window.click("#action button[type=submit]", "Show what happens")
    window.get("#action-title", title)
    window.get("#perform")


def finish(window: Window, said: str) -> None:
    """From the plan to the end."""
    window.click("#perform")
    window.get("#action .good", said)
    window.click("#close")
    window.wait(lambda: not window.find("#action[open]"))


def test_a_topic_lives_and_ends_by_the_mouse(window: Window, console_broker: BrokerProcess, viewer: Viewer) -> None:
    """The ways that most people take would be broken."""
    window.go("#/topics")
    window.click("button", "Create a topic")
    type_into(window, "name", "clicked")
    type_into(window, "partitions", "2")
    type_into(window, "settings", "retention.ms=60000")
    go_on(window, "Create the topic clicked")
    assert window.get("#action li", "with 2 partitions and 1 replica of each")
    finish(window, "The topic clicked is there.")
    assert window.violations() == []

    window.go("#/topic?name=clicked")
    window.click("button", "Produce")
    type_into(window, "key", "order 7")
    choose(window, "format", "json")
    type_into(window, "value", "{no json")
    window.click("#action button[type=submit]")
    window.get("#action [role=alert]", "no JSON")
    type_into(window, "value", '{"id": 7}')
    type_into(window, "headers", "kind: new")
    go_on(window, "Produce to clicked")
    assert window.violations() == []
    finish(window, "1 record is written.")
    told = [viewer.ask("messages", topic="clicked", partition=index)["records"] for index in range(2)]
    (record,) = told[0] + told[1]
    assert (record["key"]["text"], record["value"]["text"]) == ("order 7", '{"id": 7}')
    assert record["headers"][0]["name"] == "kind" and record["headers"][0]["value"]["text"] == "new"

    window.click("button", "Add partitions")
    type_into(window, "count", "3")
    go_on(window, "Add partitions to clicked")
    finish(window, "has 3 partitions")
    window.click("button", "Delete records")
    choose(window, "where", "all")
    go_on(window, "Delete records of clicked")
    assert not window.get("#perform").is_enabled()
    window.get("#confirm").send_keys("clicked")
    finish(window, "The records of 1 partition are deleted.")
    window.click("button", "Change a setting")
    type_into(window, "key", "cleanup.policy")
    type_into(window, "value", "compact")
    go_on(window, "Change settings of the topic clicked")
    assert window.get("#action td", "compact")
    finish(window, "Set: cleanup.policy=compact.")
    window.click("button", "Delete records")
    choose(window, "where", "all")
    window.click("#action button[type=submit]")
    window.get("#action [role=alert]", "records are deleted only where delete is part of it")
    window.keys(ESCAPE)
    window.click("button.danger", "Delete")
    window.get("#confirm").send_keys("click")
    assert not window.get("#perform").is_enabled()
    window.get("#confirm").send_keys("ed")
    finish(window, "The topic clicked is deleted.")
    window.get("h1", "Not there")
    window.faults()


def test_a_topic_is_made_by_the_keyboard_alone(window: Window, viewer: Viewer) -> None:
    """People without a mouse could look and change nothing."""
    window.go("#/topics")
    window.run("document.querySelector('.actions button').focus()")
    window.keys(ENTER)
    window.wait(lambda: window.run("return document.activeElement.id") == "field-name")
    window.keys(ESCAPE)
    window.wait(lambda: not window.find("#action[open]"))
    window.keys(ENTER)
    window.wait(lambda: window.run("return document.activeElement.id") == "field-name")
    window.keys("typed" + TAB + "1" + ENTER)
    window.wait(lambda: window.run("return document.activeElement.id") == "perform")
    window.keys(ENTER)
    window.wait(lambda: window.run("return document.activeElement.id") == "close")
    window.keys(ENTER)
    window.wait(lambda: not window.find("#action[open]"))
    assert viewer.ask("topic", name="typed")["partition_count"] == 1
    # What is typed into a form is no key of the pages.
    assert window.run("return location.hash") == "#/topics"


def test_a_plan_that_is_old_is_shown_anew(window: Window, viewer: Viewer) -> None:
    """Somebody else's change would be overwritten without a word."""
    viewer.do("topic.create", name="contested", settings={"retention.ms": "1000"})
    window.go("#/topic?name=contested")
    window.click("button", "Change a setting")
    type_into(window, "key", "retention.ms")
    # A change starts from the value of now.
    window.wait(lambda: window.get("#field-value").get_property("value") == "1000")
    type_into(window, "value", "5000")
    go_on(window, "Change settings")
    assert window.get("#action li", "retention.ms: 1 s → 5 s.")
    viewer.do("topic.configure", name="contested", set={"retention.ms": "3000"})
    window.click("#perform")
    window.get("#action [role=alert]", "no longer as it was shown")
    assert window.get("#action td", "3000")
    finish(window, "Set: retention.ms=5000.")
    window.click("button", "Change a setting")
    type_into(window, "key", "retention.ms")
    type_into(window, "value", "soon")
    window.click("#action button[type=submit]")
    window.get("#action [role=alert]", "retention.ms")
    window.keys(ESCAPE)
    window.faults()


def test_files_of_records_are_produced(window: Window, viewer: Viewer, tmp_path: Path) -> None:
    """What was downloaded could not be brought to another topic."""
    viewer.do("topic.create", name="from-files", partitions=2)
    rows = [
        {"key": f"k{n}", "value": f"v{n}", "headers": [{"name": "h", "value": "x"}], "partition": n % 2}
        for n in range(6)
    ]
    lines = tmp_path / "records.jsonl"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    window.go("#/messages?topic=from-files")
    window.click("button", "Produce")
    choose(window, "format", "lines")
    window.get("#field-file").send_keys(str(lines))
    go_on(window, "Produce to from-files")
    finish(window, "6 records are written.")
    for index in range(2):
        told = viewer.ask("messages", topic="from-files", partition=index)["records"]
        assert [row["value"]["text"] for row in told] == [f"v{n}" for n in range(6) if n % 2 == index]
    image = tmp_path / "bytes.bin"
    image.write_bytes(bytes(range(256)))
    window.click("button", "Produce")
    choose(window, "format", "file")
    window.get("#field-file").send_keys(str(image))
    type_into(window, "partition", "0")
    go_on(window, "Produce to from-files")
    finish(window, "1 record is written.")
    assert viewer.ask("messages", topic="from-files", partition=0)["records"][-1]["value"]["size_bytes"] == 256


def test_a_transaction_that_holds_readers_is_aborted(window: Window, console_broker: BrokerProcess) -> None:
    """The page would show what holds readers, and nothing that could be done about it."""
    name = console_broker.create_topic("held-open", 1)
    settings = {"bootstrap.servers": console_broker.bootstrap, "transactional.id": "dead", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"held")
    assert producer.flush(30) == 0
    window.go("#/transactions?q=dead")
    window.click("button.danger", "Abort")
    window.get("#confirm").send_keys("dead")
    finish(window, "The transaction of dead is aborted.")
    window.wait(lambda: not window.find("button.danger", "Abort"))


@pytest.fixture
def phone(window: Window) -> Iterator[Window]:
    """The same browser at the size of a phone."""
    window.size(*PHONE)
    yield window
    window.size(*DESKTOP)


def test_the_menu_is_whole_on_a_phone(phone: Window) -> None:
    """Pages behind the edge of the screen would not be found."""
    phone.go("#/")
    links = phone.driver.find_elements("css selector", "#nav a")
    assert len(links) >= 9
    for link in links:
        box = link.rect
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE[0] and link.is_displayed(), link.text
    assert phone.run("return document.scrollingElement.scrollWidth <= innerWidth")
    assert phone.get("nav.links a", "Berlin").get_attribute("href") == "https://berlin.example/console/"


def test_the_first_record_is_on_the_first_screen_of_a_phone(phone: Window, console_broker: BrokerProcess) -> None:
    """A person would scroll past forms to see what a producer wrote, and not see when, and in which partition."""
    console_broker.create_topic("pocket", 2)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    producer.produce("pocket", b"first", partition=1, timestamp=1_000_000)
    assert producer.flush(30) == 0
    phone.go("#/messages?topic=pocket")
    row = phone.get("tr.record", "first")
    assert row.rect["y"] + row.rect["height"] <= PHONE[1]
    assert "partition 1" in row.text and "01-01 00:16:40" in row.text
    assert not phone.get("#search").is_displayed()
    phone.click("button[aria-expanded=false]", "Search")
    phone.get("#search").send_keys("nothing" + ENTER)
    phone.get("#page .empty", "No record")
    assert phone.get("button", "Search (in use)")


def test_a_group_is_reset_on_a_phone(phone: Window, console_broker: BrokerProcess, viewer: Viewer) -> None:
    """Who is called at night, with a phone at hand, could not help."""
    name = console_broker.create_topic("night", 1)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for _ in range(4):
        producer.produce(name, b"x")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": console_broker.bootstrap, "group.id": "asleep"})
    consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    consumer.close()
    phone.go("#/group?id=asleep")
    phone.click("button", "Reset offsets")
    choose(phone, "where", "latest")
    go_on(phone, "Reset offsets of asleep")
    box = phone.get("#action").rect
    assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE[0]
    assert phone.run("return document.scrollingElement.scrollWidth <= innerWidth")
    finish(phone, "1 offset is committed.")
    assert viewer.ask("group", id="asleep")["offsets"][0]["committed"] == 4
    phone.click("button.danger", "Delete")
    phone.get("#confirm").send_keys("asleep")
    finish(phone, "The group asleep is deleted.")


def test_records_of_many_partitions_are_paged_and_filtered(
    window: Window, console_broker: BrokerProcess, viewer: Viewer
) -> None:
    """Records in the last partitions of a topic would not be shown at all, or not in their place by time."""
    name = console_broker.create_topic("many", 60)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    for index in range(60):
        for number in range(3):
            value = json.dumps({"p": index, "n": number})
            at = 1_000_000 + 60 * number + index
            producer.produce(name, value, f"k{index}-{number}", partition=index, timestamp=at)
    assert producer.flush(30) == 0
    window.go("#/messages?topic=many")
    newest_first = [f"k{index}-{number}" for number in (2, 1, 0) for index in range(59, -1, -1)]
    for page in range(4):
        shown = newest_first[50 * page : 50 * (page + 1)]
        window.wait(lambda wanted=shown: window.run(KEYS) == wanted)
        if page < 3:
            window.click("#next")
    assert not window.get("#next").is_enabled()
    window.click("#previous")
    window.wait(lambda: window.run(KEYS) == newest_first[-80:-30])
    window.go("#/messages?topic=many&from=oldest")
    window.wait(lambda: window.run(KEYS) == newest_first[:-51:-1][::-1])
    window.go("#/messages?topic=many&from=oldest")
    window.get("#filter").send_keys("value.p = 59 and value.n > 0" + ENTER)
    window.wait(lambda: len(window.driver.find_elements("css selector", "tr.record")) == 2)
    window.get("#filter").clear()
    window.get("#filter").send_keys("value.p >" + ENTER)
    window.get("#page p", "a value is missing")
    window.faults()


def test_times_say_their_zone(window: Window) -> None:
    """A time from another zone would be taken for one's own."""
    window.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "America/New_York"})
    window.go("#/messages?topic=many&partition=0")
    assert window.get("tr.record td.nowrap", "-05:00")
    window.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
    window.go("#/messages?topic=many&partition=0")
    assert window.get("tr.record td.nowrap", "1970-01-01 00:16:40.000 UTC")


def test_a_viewer_who_has_logged_in_acts_under_its_name(window: Window, tmp_path: Path) -> None:
    """The pages could not be used where the broker has security, or showed what leads to a refusal alone."""
    settings = {"kbroker.console.manage": "true", "kbroker.metrics.authentication": "basic"}
    security = Security("SASL_PLAINTEXT", users={"admin": "admin-secret", "bob": "builder"})
    with BrokerProcess(tmp_path, settings, security=security) as broker:
        viewer = Viewer(broker.metrics_port, "admin:admin-secret")
        viewer.do("acl.add", kind="TOPIC", name="app-", pattern="PREFIXED", principal="User:bob", operation="ALL")
        # The browser keeps what is typed into its own dialog, which has no page; an address says the same.
        window.driver.get(f"http://bob:builder@127.0.0.1:{broker.metrics_port}/console/")
        secured = Window(window.driver, broker.metrics_url)
        secured.go("#/topics")
        secured.get("#about", "User:bob")
        for name, said in (("app-1", "The topic app-1 is there."), ("other", "")):
            secured.click("button", "Create a topic")
            type_into(secured, "name", name)
            if said:
                go_on(secured, f"Create the topic {name}")
                finish(secured, said)
            else:
                secured.click("#action button[type=submit]")
                secured.get("#action [role=alert]", "Authorization failed")
                secured.keys(ESCAPE)
        secured.go("#/topic?name=app-1")
        assert secured.get(".actions button", "Delete") and secured.get("#settings-of-topic button", "Change")
        assert not secured.find("#nav a", "Users")
        secured.go("#/users")
        secured.get("h1", "Not shown")
        secured.go("#/")
        assert secured.get("h1 + .quiet", "what User:bob may see") and secured.get(".facts a", "1")
        assert secured.violations() == []
        viewer.do("acl.add", kind="TOPIC", name="read-", pattern="PREFIXED", principal="User:bob", operation="READ")
        viewer.do("topic.create", name="read-only", partitions=1)
        secured.go("#/topic?name=read-only")
        assert secured.get("h1", "read-only") and not secured.find(".actions button", "Delete")
        assert viewer.ask("topic", name="app-1")["partition_count"] == 1
        assert viewer.refused("topic", name="other")[0] == 404
    window.faults()
