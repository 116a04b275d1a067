"""How much of what dashboards and alerts ask of a Kafka broker has data here: for a folder of them.

    python -m bench.asked_series FOLDER --metrics http://127.0.0.1:9644     a table: each file, its naming, its share
    python -m bench.asked_series FOLDER --names                             the series asked for and how often

Files are Grafana's dashboards (JSON), rules of Prometheus (YAML), jsonnet and anything else that has `expr`.  Of each
expression the series on brokers count: those of JMX exporter and of kafka_exporter, not those of Java, Kubernetes,
Kafka Connect or clients.  An expression has data where each of its series is in a scrape with the labels that it names;
of alternatives (`or`) one is enough.  A file is judged under the naming that gives it most, as its user would.
"""

from __future__ import annotations

import argparse
import re
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from kbroker.metrics.http_messages import KAFKA_NAMINGS, SCRAPED

SUFFIXES = (".json", ".yml", ".yaml", ".libsonnet", ".jsonnet", ".tf", ".md")
BROKERS = re.compile(
    r"(cp_)?kafka_(server|controller|network|log|cluster|coordinator|topic|consumergroup|brokers?\b|broker_info|raft)"
)
#: Of other processes, or of Java.
OTHERS = re.compile(
    r"(cp_)?kafka_(consumer|producer|connect|streams?|admin_client|schema_registry|ksql|burrow|lag_exporter"
    r"|exporter|minion)_|kafka_server_(zookeeperclient|sessionexpire)|kafka_cluster_status$"
)
_JSON = re.compile(r'"expr"\s*:\s*"((?:[^"\\]|\\.)*)"')
_INLINE = re.compile(r"^(\s*)(?:- )?expr\s*[:=]\s*(?![|>])(\S.*)$")
_BLOCK = re.compile(r"^(\s*)(?:- )?expr\s*:\s*[|>][-+]?\s*$")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")

Samples = Mapping[str, list[Mapping[str, str]]]


class Selector(NamedTuple):
    """A series that is asked for: labels that it must have, and values where they are told."""

    name: str
    equal: tuple[tuple[str, str], ...]


class Share(NamedTuple):
    """Of a file: the naming that fits it best, expressions on brokers, those with data, and the series that lack."""

    file: str
    naming: str
    asked: int
    shown: int
    lacking: tuple[str, ...]


def expressions(text: str) -> Iterator[str]:
    """What stands behind `expr` in a file."""
    for found in _JSON.findall(text):
        yield found.replace('\\"', '"').replace("\\n", " ")
    if _JSON.search(text):
        return
    lines = text.splitlines()
    for number, line in enumerate(lines):
        inline, block = _INLINE.match(line), _BLOCK.match(line)
        if inline is not None:
            yield inline[2].strip().rstrip(",").strip("'`")
        elif block is not None:
            inside = []
            for below in lines[number + 1 :]:
                if below.strip() and len(below) - len(below.lstrip()) <= len(block[1]):
                    break
                inside.append(below.strip())
            yield " ".join(inside)


def selectors(expression: str) -> list[Selector]:
    """The series on brokers in an expression."""
    found = []
    for name, inside in _SELECTOR.findall(_GROUPING.sub(" ", expression)):
        if BROKERS.match(name) and not OTHERS.match(name):
            # What a variable of the dashboard stands for is not known, nor labels that a scrape adds.
            equal = [
                (label, text)
                for label, sign, text in _MATCHER.findall(inside)
                if sign == "=" and text and "$" not in text and "%(" not in text and label in LABELS
            ]
            found.append(Selector(name, tuple(equal)))
    return found


#: Those that an exporter gives, not Prometheus.
LABELS = frozenset(
    {"name", "request", "quantile", "topic", "partition", "delayedOperation", "delayedoperation", "error"}
)


def has_data(expression: str, samples: Samples) -> bool:
    """Whether a scrape has what one alternative of an expression asks for."""
    alternatives = [selectors(part) for part in re.split(r"\bor\b", expression)]
    return any(part and all(is_there(one, samples) for one in part) for part in alternatives)


def is_there(one: Selector, samples: Samples) -> bool:
    """Whether a sample has the name and the values.  Names of topics are the user's."""
    wanted = [(label, text) for label, text in one.equal if label not in ("topic", "partition")]
    return any(
        all(labels.get(label, labels.get(label.lower())) == text for label, text in wanted)
        for labels in samples.get(one.name, ())
    )


def scrapes(metrics_url: str) -> dict[str, Samples]:
    """What a broker shows, by naming."""
    made: dict[str, Samples] = {}
    for naming in ("strimzi", *KAFKA_NAMINGS):
        path = "/metrics/kafka" if naming == "strimzi" else f"/metrics/kafka/{naming}"
        assert path in SCRAPED
        with urllib.request.urlopen(f"{metrics_url}{path}", timeout=60) as answer:
            text = answer.read().decode()
        samples: dict[str, list[Mapping[str, str]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append(sample.labels)
        made[naming] = samples
    return made


def asked_of_brokers(text: str) -> list[str]:
    """The expressions of a file that ask a broker for something."""
    return [expression for expression in expressions(text) if selectors(expression)]


def share(file: str, asked: Iterable[str], shown: Mapping[str, Samples]) -> Share:
    """How much of a file has data."""
    asked = list(asked)
    best = max(shown, key=lambda naming: sum(has_data(each, shown[naming]) for each in asked))
    without = [each for each in asked if not has_data(each, shown[best])]
    lacking = {one.name for each in without for one in selectors(each) if not is_there(one, shown[best])}
    return Share(file, best, len(asked), len(asked) - len(without), tuple(sorted(lacking)))


def main() -> int:
    """The table, or the names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--metrics", default="http://127.0.0.1:9644", help="a broker's metrics.listener")
    parser.add_argument("--names", action="store_true", help="the series asked for, with how often, by file")
    arguments = parser.parse_args()
    files = sorted(path for path in arguments.folder.rglob("*") if path.suffix in SUFFIXES)
    texts = {str(path.relative_to(arguments.folder)): path.read_text("utf-8", "replace") for path in files}
    asked = {name: found for name, text in texts.items() if (found := asked_of_brokers(text))}
    if arguments.names:
        for file, found in asked.items():
            for one, count in sorted(Counter(one for each in found for one in selectors(each)).items()):
                labels = ",".join(f"{label}={text}" for label, text in one.equal)
                sys.stdout.write(f"{file}\t{one.name}\t{labels}\t{count}\n")
        return 0
    shown = scrapes(arguments.metrics)
    rows = [share(file, found, shown) for file, found in asked.items()]
    for row in rows:
        sys.stdout.write(f"{row.file}\t{row.naming}\t{row.shown} of {row.asked}\t{' '.join(row.lacking)}\n")
    total, with_data = sum(row.asked for row in rows), sum(row.shown for row in rows)
    sys.stdout.write(f"{len(rows)} files: {with_data} of {total} expressions on brokers have data")
    sys.stdout.write(f", {100 * with_data / max(total, 1):.1f} %\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
