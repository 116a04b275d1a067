"""Controllers of Apache Kafka on directories that kbroker has formatted, and their quorum by the commands of both.

Of `kbroker.cluster.kraft.formatting` and `kbroker.cli.cluster.quorum_commands`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.main import run
from kbroker.migration.metadata_log import MetadataLog
from kbroker.schemas import wire
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.cluster.kraft.kafka_controllers import KafkaController
from tests.compat.brokers import CLUSTER_ID
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for
from tests.ports import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
USER = "SCRAM-SHA-512=[name=alice,password=alice-secret]"


class FormattedByUs(KafkaController):
    """A controller whose directories are formatted before Kafka would do it."""

    how: tuple[str, ...] = ()

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    def command(self) -> list[str]:
        if not self.data.exists():
            self.data.mkdir(parents=True)
            (self.data / "meta.properties").touch()
            super().command()  # Writes the settings, and takes the directory for a formatted one.
            (self.data / "meta.properties").unlink()
            assert run(["format", "-t", CLUSTER_ID, str(self.properties), *self.how]) == 0
        return super().command()


@pytest.fixture(name="controllers")
def _controllers(tmp_path: Path) -> Iterator[list[FormattedByUs]]:
    ports = [free_port() for _ in range(2)]
    made = [FormattedByUs(tmp_path / f"c{at}", 3001 + at, ports, {}, is_dynamic=True) for at in range(2)]
    made[0].how = ("--standalone", "--add-scram", USER, "--feature", "group.version=0")
    made[1].how = ("--no-initial-controllers",)
    yield made
    for each in made:
        each.kill()


@pytest.mark.slow
def test_kafkas_controllers_begin_as_they_were_formatted(
    controllers: list[FormattedByUs], capsys: pytest.CaptureFixture[str]
) -> None:
    """They would not start, or as another cluster than the one that was asked for."""
    first, second = controllers
    first.start()
    second.start()
    at = f"127.0.0.1:{first.port}"

    def described() -> Any:
        capsys.readouterr()
        if run(["cluster", "quorum", "describe", "--controller", at, "--json"]):
            return None
        return json.loads(capsys.readouterr().out)

    def has_caught_up() -> bool:
        found = described()
        row = next((each for each in (found or {"replicas": ()})["replicas"] if each["id"] == 3002), None)
        return row is not None and row["lag"] == 0

    wait_for(has_caught_up, "the observer that has the log", every=0.5)
    assert run(["cluster", "quorum", "add", "--controller", at, str(second.properties)]) == 0
    assert run(["cluster", "quorum", "add", "--controller", at, str(second.properties)]) == 1
    assert "DUPLICATE_VOTER" in capsys.readouterr().err
    wait_for(lambda: "observer" not in {each["role"] for each in described()["replicas"]}, "the voter", every=0.5)
    found = described()
    theirs = run_java(TOOL, "--bootstrap-controller", at, "describe", "--status", seconds=120)
    assert theirs.returncode == 0, theirs.stdout + theirs.stderr
    said = dict(re.findall(r"^(\w+): +(.*)$", theirs.stdout, re.MULTILINE))
    assert (said["ClusterId"], said["LeaderId"], said["LeaderEpoch"]) == (
        found["cluster_id"],
        str(found["leader"]),
        str(found["epoch"]),
    )
    assert {(each["id"], each["directoryId"], *each["endpoints"]) for each in json.loads(said["CurrentVoters"])} == {
        (each["id"], each["directory_id"], *each["endpoints"]) for each in found["replicas"]
    }
    leaving = next(each for each in found["replicas"] if each["role"] == "follower")
    words = ["remove", "--controller", at, "-i", str(leaving["id"]), "-d", leaving["directory_id"]]
    assert run(["cluster", "quorum", *words]) == 0
    assert run(["cluster", "quorum", *words]) == 1
    assert "VOTER_NOT_FOUND" in capsys.readouterr().err
    first.stop()
    records = [each.value for each in MetadataLog(SYSTEM_FILES, str(first.data), was_closed=False).records()]
    levels = {each.name: each.feature_level for each in records if isinstance(each, wire.FeatureLevelRecord)}
    assert levels["metadata.version"] == 30 and "group.version" not in levels
    assert [each.name for each in records if isinstance(each, wire.UserScramCredentialRecord)] == ["alice"]
