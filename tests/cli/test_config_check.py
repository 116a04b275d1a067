"""`kbroker config check FILE`: what it says of each line is what the start would do.

Also of `kbroker.config.judgement`, `kbroker.config.place_in_cluster`, `kbroker.config.together`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbroker.cli.main import run
from kbroker.config import BrokerConfig, ConfigError

LINES = (
    ("log.segment.byte=5", "unknown", "did you mean log.segment.bytes?"),
    ("log_retention_ms=5", "unknown", "did you mean log.retention.ms?"),
    ("retention.ms=7", "unknown", "log.retention.ms is what topics have without one"),
    ("zookeeper.sync.time.ms=3", "removed", "Kafka removed it in version 4"),
    ("num.io.threads=9", "no effect", "one event loop"),
    ("broker.id=4", "deprecated", "node.id is its name now"),
    ("num.partitions=x", "invalid", "Not a number of type INT"),
    ("listeners=PLAINTEXT://:99999999", "invalid", "is not name://host:port"),
    ("max.connections.per.ip=0", "invalid", "can be set to zero only if"),
    ("group.min.session.timeout.ms=9000000", "invalid", "no more than group.max.session.timeout.ms"),
    ("ssl.engine.factory.class=a.B", "refused", "it names a Java class that is none"),
    ("create.topic.policy.class.name=a.B", "refused", "it names Java classes"),
)


def check(path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    path.write_text(text)
    status = run(["config", "check", str(path), "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("line", "verdict", "why"), LINES, ids=[each[0] for each in LINES])
def test_each_line_is_judged_as_the_start_judges_it(
    line: str, verdict: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file would pass the check and stop the start, or stop in the check and start."""
    path = tmp_path / "server.properties"
    status, report = check(path, f"# first\nnum.recovery.threads.per.data.dir=3\n{line}\n", capsys)
    (finding,) = report["findings"]  # type: ignore[misc]
    assert (finding["line"], finding["key"], finding["verdict"]) == (3, line.partition("=")[0], verdict)
    assert why in finding["why"]
    try:
        BrokerConfig.load(path, environ={})
        starts = True
    except ConfigError:
        starts = False
    assert starts == report["starts"] == (status == 0) == (not finding["stops"])


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The user would mend a file line by line, with a start after each."""
    status, report = check(tmp_path / "a.properties", "\n".join(line for line, _, _ in LINES), capsys)
    assert status == 1
    findings = report["findings"]
    assert isinstance(findings, list)
    assert [(each["line"], each["verdict"]) for each in findings] == [
        (number, verdict) for number, (_, verdict, _) in enumerate(LINES, 1)
    ]


def test_a_line_that_does_not_count_is_named_and_secrets_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user would look at the wrong one of two lines; a password would end up in a bug report."""
    path = tmp_path / "a.properties"
    text = "num.partitions=1\nnum.partitions=2\nssl.keystore.password=hunter2\n"
    _, report = check(path, text, capsys)
    assert "hunter2" not in str(report)
    assert report["findings"][0] == {  # type: ignore[index]
        "line": 2,
        "key": "num.partitions",
        "value": "2",
        "verdict": "twice",
        "why": "is set on line 1 too: the last one counts",
        "stops": False,
    }
    assert run(["config", "check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "3 settings; a broker starts with them" in out and "hunter2" not in out


def test_a_good_file_and_one_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script could not tell a file without faults from one that was not looked at."""
    path = tmp_path / "a.properties"
    path.write_text("num.partitions=3\n")
    assert run(["config", "check", str(path)]) == 0
    assert "settings: 1, each known and acted on" in capsys.readouterr().out
    path.write_text("a=\\u12\n")
    for wrong in (path, tmp_path / "nowhere"):
        assert run(["config", "check", str(wrong)]) == 1
        assert capsys.readouterr().err.startswith(f"kbroker: {wrong}: ")
