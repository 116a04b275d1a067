"""Each package that pyproject.toml asks for is imported by the code that it is listed for, and nothing else is."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

import kbroker

ROOT = Path(__file__).parents[1]
PACKAGE = Path(kbroker.__file__).parent
MODULES = {
    "confluent-kafka": "confluent_kafka",
    "google-re2": "re2",
    "kafka-python": "kafka",
    "opentelemetry-proto": "opentelemetry",
    "prometheus-client": "prometheus_client",
    "protobuf": "google",
    "pure-sasl": "puresasl",
    "pyjks": "jks",
    "pyopenssl": "OpenSSL",
    "pytest-xdist": "xdist",
    "python-snappy": "snappy",
    "pyyaml": "yaml",
}
"""Packages whose module has another name than theirs."""
RUN_AS_PROGRAMS = {"grpcio-tools", "py-spy", "pytest-benchmark", "pytest-timeout"}
"""Plug-ins of pytest, and programs: nothing imports them."""
BEHIND_PYSPARK = {"pandas"}
OF_OTHERS = {"node_modules", "apps"}
"""Folders whose files this environment does not run: `apps` have theirs by `tests/integrations/python`."""
COME_WITH_OTHERS = {"google", "numpy", "py4j", "typing_extensions", "Cython", "cramjam", "pytest_benchmark"}
"""Modules that other packages bring along: pyarrow, pyspark, python-snappy, mypy, the build, `make bench`."""


def listed(extra: str = "") -> set[str]:
    """The packages of an extra, or those that every installation gets."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {re.split(r"[<>=;\[ ]", line, maxsplit=1)[0].lower() for line in wanted}


def imported(files: Iterable[Path]) -> set[str]:
    """The top-level modules that Python files import, within functions as well."""
    found = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(name.name.partition(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def modules(packages: set[str]) -> set[str]:
    return {MODULES.get(package, package) for package in packages - RUN_AS_PROGRAMS - BEHIND_PYSPARK}


def test_the_broker_installs_what_it_imports_and_nothing_else() -> None:
    """Every user would install a package that only a test needs, or the broker would miss one."""
    found = imported(PACKAGE.rglob("*.py"))
    needed, spark, testing = modules(listed()), modules(listed("spark")), modules(listed("testing"))
    schemas = modules(listed("schemas"))
    assert schemas <= found, f"listed and never imported: {schemas - found}"
    assert needed <= found, f"installed and never imported: {needed - found}"
    others = found - needed - spark - testing - schemas - set(sys.stdlib_module_names) - COME_WITH_OTHERS - {"kbroker"}
    assert not others, f"imported and not listed: {others}"


@pytest.mark.parametrize(("extra", "folders"), [("test", ["tests", "bench"]), ("bench", ["bench", "profiling"])])
def test_an_extra_lists_what_its_files_import(extra: str, folders: list[str]) -> None:
    """A fresh environment would lack a package that the tests, or the benchmark, need."""
    paths = [path for name in folders for path in (ROOT / name).rglob("*.py") if not OF_OTHERS & {*path.parts}]
    if not any((ROOT / name).is_dir() for name in folders):
        pytest.skip(f"{folders} are not in this tree")
    found, wanted = imported(paths), modules(listed(extra))
    assert wanted <= found, f"listed and never imported: {wanted - found}"
    others_of = set().union(*(modules(listed(each)) for each in ("spark", "test", "browser", "iceberg")))
    known = wanted | modules(listed()) | others_of | {"kbroker"}
    own = {path.stem for path in paths} | {"tests", "bench", "profiling"}
    others = found - known - own - set(sys.stdlib_module_names) - COME_WITH_OTHERS
    assert not others, f"imported and not listed: {others}"
