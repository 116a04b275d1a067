"""The rules of the house that a machine can check: layers, file sizes, what Cython sources may not use.

Layers, from the bottom; a module imports from its own package and from packages below, never from above.  `PACKAGES`
lists for each package all that it may import.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kbroker

PACKAGE = Path(kbroker.__file__).parent
TESTS = Path(__file__).parent
PYTHON_LINES = 500
CYTHON_LINES = 400

BASE = {"types", "errors", "clock", "__init__"}
FOUNDATION = BASE | {"_fast", "config", "metrics", "log_output", "periodic"}
RECORDS = FOUNDATION | {"records"}
PROTOCOL = FOUNDATION | {"protocol"}
SCHEMAS = PROTOCOL | {"schemas"}
STORAGE = RECORDS | {"scheduling", "storage"}
METADATA = SCHEMAS | {"metadata"}
NETWORK = SCHEMAS | RECORDS | {"network"}
REPLICATION = STORAGE | METADATA | NETWORK | {"replication"}
COORDINATOR = REPLICATION | {"coordinator"}
HANDLERS = COORDINATOR | {"handlers"}
BROKER = HANDLERS | {"broker"}
REPLAY = STORAGE | SCHEMAS | {"replay"}

PACKAGES: dict[str, set[str]] = {
    "__init__": set(),
    "types": {"__init__"},
    "errors": {"__init__"},
    "clock": {"__init__"},
    "scheduling": {"__init__"},
    "_fast": BASE | {"_fast"},
    "config": BASE | {"config"},
    "log_output": BASE | {"log_output"},
    "periodic": FOUNDATION,
    "metrics": FOUNDATION,
    "records": RECORDS,
    "protocol": PROTOCOL,
    "schemas": SCHEMAS,
    "storage": STORAGE,
    "metadata": METADATA,
    "network": NETWORK,
    "replication": REPLICATION,
    "coordinator": COORDINATOR,
    "handlers": HANDLERS,
    "broker": BROKER,
    "replay": REPLAY,
    "cli": BROKER | REPLAY | {"cli"},
}

_CIMPORT = re.compile(r"^\s*from\s+(kbroker[\w.]*|\.[\w.]*)\s+c?import\b|^\s*c?import\s+(kbroker[\w.]*)", re.MULTILINE)


def sources(*suffixes: str) -> list[Path]:
    return sorted(path for suffix in suffixes for path in PACKAGE.rglob(f"*{suffix}"))


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


def package_of(path: Path) -> str:
    """The package, or the module right under `kbroker`, that a source belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.partition(".")[0]


def imported(path: Path) -> Iterator[str]:
    """The dotted names under kbroker that a source imports, wherever in it."""
    text = path.read_text()
    if path.suffix in (".pyx", ".pxd"):
        yield from (match[1] or match[2] for match in _CIMPORT.finditer(text))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "kbroker")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno} imports by a relative name"
            if node.module == "kbroker":
                yield from (f"kbroker.{alias.name}" for alias in node.names)
            elif node.module is not None and node.module.startswith("kbroker."):
                yield node.module


def part_of(name: str) -> str:
    """The package behind a dotted name; names that `kbroker` itself defines belong to its `__init__`."""
    parts = name.split(".")
    if len(parts) == 1 or not ((PACKAGE / parts[1]).is_dir() or list(PACKAGE.glob(f"{parts[1]}.*"))):
        return "__init__"
    return parts[1]


def test_every_package_has_a_place_in_the_layers() -> None:
    """A new package could import anything."""
    assert {package_of(path) for path in sources(".py", ".pyx", ".pxd", ".pyi")} <= set(PACKAGES)


@pytest.mark.parametrize("path", sources(".py", ".pyx", ".pxd", ".pyi"), ids=name_of)
def test_lower_layers_do_not_import_higher_ones(path: Path) -> None:
    """A part could no longer be understood, tested or replaced without those above it."""
    allowed = PACKAGES[package_of(path)] | {package_of(path)}
    above = sorted({name for name in imported(path) if part_of(name) not in allowed})
    assert not above, f"{name_of(path)} imports {', '.join(above)}"


@pytest.mark.parametrize("path", sources(".py", ".pyx"), ids=name_of)
def test_files_stay_small(path: Path) -> None:
    """A file would hold more than one concept, and grow."""
    limit = CYTHON_LINES if path.suffix == ".pyx" else PYTHON_LINES
    lines = len(path.read_text().splitlines())
    assert lines <= limit, f"{name_of(path)} has {lines} lines, {limit} are allowed"


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_test_files_stay_small(path: Path) -> None:
    """Nobody would find the test that covers a behaviour."""
    assert len(path.read_text().splitlines()) <= PYTHON_LINES


@pytest.mark.parametrize("path", sources(".pyx", ".pxd"), ids=name_of)
def test_cython_shares_code_by_cimport(path: Path) -> None:
    """Included text has no imports of its own, and DEF and IF are going away."""
    text = path.read_text()
    assert not re.search(r"^\s*include\s+[\"']", text, re.MULTILINE), "uses include"
    assert not re.search(r"^\s*(DEF\s+\w+\s*=|IF\s+.*:\s*$)", text, re.MULTILINE), "uses DEF or IF"


def test_extensions_have_type_stubs() -> None:
    """mypy would see nothing of what Python calls in an extension."""
    assert [name_of(path) for path in sources(".pyx") if not path.with_suffix(".pyi").exists()] == []


def test_every_module_says_what_it_is() -> None:
    """A reader would have to guess a module's purpose from its code."""
    silent = [
        name_of(path)
        for path in sources(".py")
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


def test_tests_say_what_would_be_lost() -> None:
    """A failing test would not tell whether it matters."""
    silent = []
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            if is_test and ast.get_docstring(node) is None:
                silent.append(f"{path.relative_to(TESTS)}:{node.name}")
    assert silent == []


def test_starting_imports_neither_client_nor_tables() -> None:
    """Every broker would start slower and be larger for what only other commands use."""
    import subprocess
    import sys

    heavy = ("rich", "confluent_kafka", "prometheus_client", "zstandard", "lz4", "snappy", "pyspark", "pyarrow")
    code = f"import sys, kbroker.cli.start; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
