"""The wheel in an environment of its own, with nothing but what it requires, away from the tree."""

from __future__ import annotations

import json
import os
import signal
import sysconfig
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.package.conftest import Run
from tests.tools import require_module

# What the extra `spark` brings.
EXTRA = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "matplotlib", "jinja2", "psutil", "tqdm"}
EXTRAS = {"replay": EXTRA, "registry": {"fastavro", "jsonschema", "referencing", "google", "grpc_tools"}}
"""What the parts of a module's name say that it may need beyond what every installation gets."""
# Imports each module that is there, but for programs (`__main__`); prints where it came from, or the module for want of
# which it could not be.
IMPORT_ALL = """
import importlib, json, pathlib, sys
import kbroker
place = pathlib.Path(kbroker.__file__).parent
names = {path.relative_to(place.parent).as_posix().split(".")[0].replace("/", ".").removesuffix(".__init__")
         for suffix in ("*.py", "*.so") for path in place.rglob(suffix) if path.stem != "__main__"}
found = {}
for name in sorted(names):
    try:
        found[name] = [importlib.import_module(name).__file__, None]
    except ModuleNotFoundError as error:
        found[name] = [None, error.name.partition(".")[0]]
print(json.dumps(found))
"""

WITHOUT_THE_PIPELINE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "kbroker.replay" or name.startswith("kbroker.replay."):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
"""


def modules(wheel: list[str]) -> set[str]:
    """The names of the modules in the wheel, without programs."""
    return {
        name.partition(".")[0].replace("/", ".").removesuffix(".__init__")
        for name in wheel
        if name.endswith((".py", *EXTENSION_SUFFIXES)) and not name.endswith("/__main__.py")
    }


class InstalledBroker(BrokerProcess):
    """A broker started by the command that the wheel installs."""

    def __init__(self, directory: Path, python: Path) -> None:
        super().__init__(directory)
        self.kbroker = python.with_name("kbroker")

    def command(self) -> list[str]:
        command = super().command()
        return [str(self.kbroker), *command[command.index("start") :]]


@pytest.fixture
def broker(tmp_path: Path, python: Path) -> Iterator[BrokerProcess]:
    """A running one."""
    broker = InstalledBroker(tmp_path / "broker", python)
    yield broker.start()
    if broker.running:
        broker.kill()


def test_every_module_imports_with_what_is_required(run: Run, wheel: list[str], python: Path) -> None:
    """A module or a dependency would be missing where the package is installed alone."""
    found = json.loads(run("python", "-c", IMPORT_ALL))
    assert set(found) == modules(wheel)
    wanting = {name: lacks for name, (_, lacks) in found.items() if lacks is not None}
    wanting.pop("kbroker.testing.plugin", None)  # pytest loads it, so pytest is there
    outside = {
        name: lacks
        for name, lacks in wanting.items()
        if lacks not in next((extra for part, extra in EXTRAS.items() if part in name.split(".")), ())
    }
    assert not outside, f"only Spark may need the extra `spark`, and decoders `schemas`: {outside}"
    for name, (file, _) in found.items():
        if file is not None:
            assert Path(file).is_relative_to(python.parent.parent), f"{name} came from {file}"
            is_room = Path(file).name == "__init__.py"
            assert is_room or not name.startswith("kbroker._fast.") or file.endswith(tuple(EXTENSION_SUFFIXES)), name


def test_the_spark_pipeline_is_needed_by_its_commands_alone(run: Run) -> None:
    """A broker's installation would load, and need, what only Spark's users have."""
    found = json.loads(run("python", "-c", WITHOUT_THE_PIPELINE + IMPORT_ALL))
    lacking = {name for name, (_, lacks) in found.items() if lacks == "kbroker"}
    assert lacking
    assert {name for name in lacking if not name.startswith(("kbroker.replay", "kbroker.cli.spark."))} == set()


def test_every_module_imports_with_the_extra_for_spark(run: Run, wheel: list[str], python: Path) -> None:
    """The Spark pipeline would lack a module where it is installed."""
    require_module("pyspark")
    found = json.loads(run("python", "-c", IMPORT_ALL, lent=Path(sysconfig.get_path("purelib"))))
    assert set(found) == modules(wheel)
    assert {name: lacks for name, (_, lacks) in found.items() if lacks is not None} == {}
    assert all(Path(file).is_relative_to(python.parent.parent) for file, _ in found.values())


def test_commands_are_installed(run: Run, python: Path) -> None:
    """What the documentation says to type would not be found."""
    assert "kbroker" in run("kbroker", "--version")
    assert "start" in run("kbroker", "--help")
    assert run("kbroker-spark-python", "-c", "import kbroker; print(kbroker.__file__)").startswith(
        str(python.parent.parent)
    )
    assert "log.retention.hours" in run("kbroker", "config", "--markdown")
    assert run("python", "-m", "kbroker.cli", "--version") == run("kbroker", "--version")


def test_records_of_each_codec_come_back(run: Run, broker: BrokerProcess) -> None:
    """A broker that works in the tree would not where it was installed: for want of a codec, or of a template."""
    to = ("-b", broker.bootstrap)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        run("kbroker", "topics", "create", codec, "-p", "1", *to)
        # Long enough for a batch of one to be smaller when it is compressed: librdkafka sends it as it is otherwise.
        lines = "".join(f"key-{number}|value {number} {'x' * 300}\n" for number in range(200))
        sent = json.loads(run("kbroker", "produce", codec, "-K", "|", "-z", codec, "--json", *to, stdin=lines))
        assert sent["delivered"] == 200
        assert run("kbroker", "consume", codec, "--from-beginning", "-e", "--key-separator", "|", *to) == lines
        (segment,) = (broker.data_dir / f"{codec}-0").glob("*.log")
        batches = [json.loads(line) for line in run("kbroker", "dump-log", "--json", str(segment)).splitlines()]
        assert {batch["compression"] for batch in batches if "base_offset" in batch} == {codec}
    assert {topic["name"] for topic in json.loads(run("kbroker", "topics", "list", "--json", *to))} >= {"none", "zstd"}
    os.kill(broker.pid, signal.SIGTERM)
    assert broker.wait() == 0
