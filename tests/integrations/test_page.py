"""`docs/integrations.md`: its versions are those that are fetched, its settings those that the tests use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.integrations.programs import HERE

ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "integrations.md"
STREAMS = ROOT / "tests" / "compat" / "java" / "streams" / "pom.xml"

Row = tuple[str, list[str], str, str]


def rows() -> dict[str, Row]:
    """Program, versions, settings and what was seen, by the path of the test."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] != "Program":
            program, versions, settings, seen, test = cells
            found[test.rstrip(" |").strip("`")] = (program, versions.split(", "), settings, seen)
    return found


def of_maven(pom: Path, *names: str) -> list[str]:
    """Properties of a Maven project."""
    properties = ElementTree.parse(pom).getroot().find("{*}properties")
    assert properties is not None
    texts = [properties.findtext(f"{{*}}{name}.version") for name in names]
    return [text for text in texts if text is not None]


def of_list(path: Path, *names: str) -> list[str]:
    """Releases of a list of Python's or Debian's packages."""
    lines = [re.split(r"=+", re.sub(r"\[.*\]", "", line)) for line in path.read_text().split()]
    releases = {line[0]: line[-1] for line in lines}
    return [releases[name] for name in names]


def of_node(folder: Path, *names: str) -> list[str]:
    """Releases in a Node project's lock."""
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    return [packages[f"node_modules/{name}"]["version"] for name in names]


def fetched() -> dict[str, list[str]]:
    """The versions that the tests run, by the path of the test."""
    python, maven = HERE / "python", HERE / "maven"
    here = {
        "test_connect": of_maven(maven / "connect.xml", "kafka"),
        "test_mirror_maker": of_maven(maven / "connect.xml", "kafka"),
        "test_flink": of_maven(maven / "flink.xml", "flink", "connector"),
        "test_faststream": of_list(python / "faststream.txt", "faststream", "aiokafka", "confluent-kafka"),
        "test_quix": of_list(python / "quixstreams.txt", "quixstreams"),
        "test_faust": of_list(python / "faust.txt", "faust-streaming"),
        "test_nestjs": of_node(HERE / "nestjs", "@nestjs/microservices", "kafkajs"),
        "test_rsyslog": of_list(HERE / "debian" / "rsyslog.txt", "rsyslog"),
    }
    of_streams = {"tests/compat/test_streams.py": of_maven(STREAMS, "kafka")}
    return {**{f"tests/integrations/{name}.py": versions for name, versions in here.items()}, **of_streams}


def test_the_page_names_the_versions_that_are_tested() -> None:
    """A reader would trust a version that nobody has run, or would not find a program that is tested."""
    assert {test: versions for test, (_program, versions, _settings, _seen) in rows().items()} == fetched()
    tests = {f"tests/integrations/{path.name}" for path in HERE.glob("test_*.py")} - {"tests/integrations/test_page.py"}
    assert tests == {test for test in rows() if test.startswith("tests/integrations/")}


@pytest.mark.parametrize("test", fetched())
def test_the_settings_that_the_page_names_are_those_of_the_test(test: str) -> None:
    """A reader would set what was never tried."""
    text = (ROOT / test).read_text()
    parts = [*(HERE / "apps").glob("*.py"), *(HERE / "java").glob("*.java")]
    text += "".join(part.read_text() for part in parts if part.stem in text)
    # Settings are written `key=value`, "key": "value" or key="value"; a value's quotes and blanks say nothing.
    plain = re.sub(r"""["'\s]""", "", text).replace(":", "=")
    _program, _versions, settings, seen = rows()[test]
    named = [re.sub(r"""["'\s]""", "", word) for word in re.findall(r"`([^`]+)`", settings + seen)]
    assert [word for word in named if word not in plain and not is_of_the_broker(word)] == []


def is_of_the_broker(word: str) -> bool:
    """Whether it is the broker's own setting, which the row names as a bound."""
    return word == "transaction.max.timeout.ms"
