"""The console over HTTP: its files, its guard, what it answers to bad questions.

Also of `kbroker.console.static_files`, `kbroker.console.parts`, `kbroker.console.reader`.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

import kbroker.console
from kbroker.console.links import Link, links_of
from kbroker.console.site import ENDPOINTS, to_json
from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer

STATIC = Path(kbroker.console.__file__).parent / "static"


def test_the_console_is_where_a_browser_looks_first(viewer: Viewer) -> None:
    """A person who opens the address of the metrics would see a line of text."""
    assert viewer.get("/").headers["location"] == "/console/"
    assert viewer.get("/console").headers["location"] == "/console/"
    page = viewer.get("/console/")
    assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "access-control-allow-origin" not in page.headers


@pytest.mark.parametrize("name", sorted(path.name for path in STATIC.iterdir()))
def test_every_file_is_served_with_its_type_and_tag(viewer: Viewer, name: str) -> None:
    """A browser would not run it, or load it anew at each visit."""
    body = (STATIC / name).read_bytes()
    answer = viewer.get(f"/console/{name}", Accept_Encoding="gzip")
    assert answer.status == 200
    assert (gzip.decompress(answer.body) if "content-encoding" in answer.headers else answer.body) == body
    again = viewer.get(f"/console/{name}", If_None_Match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_the_pages_need_nothing_from_elsewhere() -> None:
    """The console would not work without the internet, and tell others who looks at it."""
    for path in STATIC.iterdir():
        if path.name.startswith("uPlot"):
            continue
        text = path.read_text()
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)[^\s\"']+", text), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), path.name
        for imported in re.findall(r"from \"(.+?)\"", text):
            assert (STATIC / imported).is_file(), (path.name, imported)


@pytest.mark.parametrize("path", ["/console/none.js", "/console/../site.py", "/console/%2e%2e/site.py", "/console/a/b"])
def test_nothing_else_is_a_file(viewer: Viewer, path: str) -> None:
    """Files of the machine could be read."""
    assert viewer.get(path).status == 404


def test_other_names_and_origins_are_refused(viewer: Viewer) -> None:
    """A page of somebody else, open in a viewer's browser, could read what the broker holds."""
    rebound = viewer.get("/console/api/overview", Host="evil.example")
    assert rebound.status == 421 and "kbroker.console.hosts" in rebound.value["error"]
    assert viewer.get("/console/", Host="evil.example").status == 421
    assert viewer.get("/console/api/overview", Sec_Fetch_Site="cross-site").status == 403
    assert viewer.get("/console/api/overview", Origin="http://evil.example").status == 403
    assert viewer.get("/console/api/overview", Sec_Fetch_Site="same-origin").status == 200


def test_unknown_endpoints_and_bad_parameters_are_told(viewer: Viewer) -> None:
    """A page would wait for an answer that says nothing."""
    status, error = viewer.refused("nothing")
    assert status == 404 and all(name in error for name in ENDPOINTS)
    assert viewer.refused("topics", sort="colour")[0] == 400
    assert viewer.refused("topic") == (400, "name is missing")
    assert viewer.refused("topic", name="none") == (404, "there is no topic none")
    assert viewer.refused("topic", name="../../etc")[0] == 404
    assert viewer.refused("partition", name="plain", partition=12) == (404, "topic plain has no partition 12")
    assert viewer.refused("partition", name="plain", partition=1 << 70)[0] == 400


def test_the_broker_knows_its_last_hour(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """Charts would be empty at the first look, and a person who comes after a fault would not see it."""
    console_broker.create_topic("of-the-past", 1)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap})
    producer.produce("of-the-past", b"x" * 1000)
    assert producer.flush(30) == 0
    told = viewer.wait("past", lambda value: value["rows"][-1][value["names"].index("produced_bytes")] > 1000)
    assert set(told["names"]) - {"at"} <= set(viewer.ask("overview")["totals"])
    assert len(told["rows"]) <= 240 and all(len(row) == len(told["names"]) for row in told["rows"])
    times = [row[told["names"].index("at")] for row in told["rows"]]
    assert times == sorted(times)


def test_links_lead_to_the_consoles_of_other_clusters() -> None:
    """Somebody who may change a setting could have a link run a script in the browsers of others."""
    texts = ["Berlin=https://b.example/console/?a=b", "http://10.0.0.1:9644/console/", "x=javascript:alert(1)", "y"]
    assert links_of(texts) == [
        Link("Berlin", "https://b.example/console/?a=b"),
        Link("http://10.0.0.1:9644/console/", "http://10.0.0.1:9644/console/"),
    ]


def test_values_become_json() -> None:
    """An answer would end in an error of Python."""

    @dataclass(frozen=True, slots=True)
    class Value:
        name: str
        parts: tuple[int, ...]

    assert json.loads(to_json({"all": [Value("</script>", (1, 2))]})) == {
        "all": [{"name": "</script>", "parts": [1, 2]}]
    }
    with pytest.raises(TypeError):
        to_json(object())
