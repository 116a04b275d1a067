"""The rules of the house that a machine can check: layers, file sizes, what Cython sources may not use.

Layers, from the bottom; a module imports from its own package and from packages below, never from above.  `PACKAGES`
lists for each package all that it may import, `ROOMS` the same within the packages that have rooms.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import kbroker

PACKAGE = Path(kbroker.__file__).parent
TESTS = Path(__file__).parent
PYTHON_LINES = 500
CYTHON_LINES = 400
MOST_ANYS = 97
FUNCTION_LINES = 60
# Files that hold one class, or one way of a thing from its beginning to its end, which would be no clearer in two.
ONE_THING_LINES = {
    "kbroker/replication/replica_manager.py": 550,
    "kbroker/storage/directories/future_log.py": 550,
    "kbroker/storage/recovery/log_loader.py": 600,
    "kbroker/storage/log/log_segment.py": 600,
    "kbroker/storage/manager/log_manager.py": 600,
    "kbroker/storage/log/unified_log.py": 600,
}

BASE = {"__init__", "authorities", "clock", "error_codes", "errors", "nearest", "own_python", "types", "waiting"}
BASE |= {"java_patterns", "patterns"}
FOUNDATION = BASE | {"_fast", "config", "metrics", "log_output", "outage", "periodic"}
RECORDS = FOUNDATION | {"records"}
PROTOCOL = FOUNDATION | {"protocol"}
SCHEMAS = PROTOCOL | {"schemas"}
HOST = FOUNDATION | {"host"}
REGISTRY = FOUNDATION | {"registry"}
STORAGE = RECORDS | HOST | {"storage"}
METADATA = SCHEMAS | {"metadata"}
TELEMETRY = RECORDS | {"telemetry"}
NETWORK = SCHEMAS | RECORDS | {"network"}
QUOTAS = METADATA | NETWORK | {"quotas"}
SECURITY = METADATA | NETWORK | {"security"}
GATE = QUOTAS | SECURITY | {"gate"}
CLUSTER = QUOTAS | SECURITY | STORAGE | {"cluster"}
REPLICATION = STORAGE | CLUSTER | NETWORK | {"replication"}
COORDINATOR = REPLICATION | {"coordinator"}
HANDLERS = COORDINATOR | GATE | TELEMETRY | REGISTRY | {"handlers"}
CONSOLE = HANDLERS | {"console"}
STARTUP = STORAGE | METADATA | {"startup"}
ASSEMBLY = CONSOLE | STARTUP | {"assembly"}
BROKER = ASSEMBLY | {"broker"}
MIGRATION = REPLICATION | STARTUP | {"migration"}
REPLAY = STORAGE | SECURITY | REGISTRY | {"replay"}

PACKAGES: dict[str, set[str]] = {
    "__init__": set(),
    "types": {"__init__"},
    "errors": {"__init__", "error_codes"},
    "error_codes": {"__init__"},
    "clock": {"__init__"},
    "nearest": {"__init__"},
    "own_python": {"__init__"},
    "waiting": {"__init__"},
    "patterns": {"__init__"},
    "java_patterns": {"__init__", "java_patterns"},
    "authorities": {"__init__"},
    "host": HOST,
    "_fast": BASE | {"_fast"},
    "config": BASE | {"config"},
    "log_output": BASE | {"log_output"},
    "outage": BASE | {"outage"},
    "periodic": FOUNDATION,
    "metrics": FOUNDATION,
    "records": RECORDS,
    "protocol": PROTOCOL,
    "schemas": SCHEMAS,
    "registry": REGISTRY,
    "storage": STORAGE,
    "startup": STARTUP,
    "metadata": METADATA,
    "cluster": CLUSTER,
    "network": NETWORK,
    "quotas": QUOTAS,
    "security": SECURITY,
    "gate": GATE,
    "telemetry": TELEMETRY,
    "replication": REPLICATION,
    "coordinator": COORDINATOR,
    "handlers": HANDLERS,
    "console": CONSOLE,
    "assembly": ASSEMBLY,
    "broker": BROKER,
    "supervision": BROKER | {"supervision"},
    "replay": REPLAY,
    "migration": MIGRATION,
    "testing": {"__init__"},
    "cli": BROKER | REPLAY | MIGRATION | {"cli", "supervision"},
}

ROOMS: dict[str, dict[str, set[str]]] = {
    "_fast": {
        "base": set(),
        "files": {"base"},
        "wire": {"base", "files"},
        "records": {"base"},
        "log": {"base", "files", "records"},
        "clean": {"base", "files", "records"},
        "net": {"base", "files", "wire", "log"},
        "requests": {"base", "files", "wire", "records", "log", "net"},
        "replay": {"base", "records"},
    },
    "storage": {
        "files": set(),
        "log": {"files"},
        "cleaner": {"files", "log"},
        "directories": {"files", "log"},
        "recovery": {"files", "log", "directories"},
        "manager": {"files", "log", "cleaner", "directories", "recovery"},
        "reports": {"files", "log", "cleaner", "manager"},
    },
    "coordinator": {
        "runtime": set(),
        "modern": {"runtime"},
        "transactions": {"runtime"},
        "classic": {"runtime", "modern"},
        "consumer": {"runtime", "modern", "classic"},
        "share": {"runtime", "modern", "classic"},
        "streams": {"runtime", "modern", "classic"},
    },
}

_CIMPORT = re.compile(
    r"^\s*from\s+(kbroker[\w.]*)\s+c?import\s+(\([^)]*\)|.*)|^\s*c?import\s+(kbroker[\w.]*)", re.MULTILINE
)


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
        for match in _CIMPORT.finditer(text):
            yield from [match[3]] if match[3] else modules_of(match[1], re.findall(r"\w+", match[2]))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "kbroker")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno} imports by a relative name"
            if node.module is not None and node.module.split(".")[0] == "kbroker":
                yield from (modules_of(node.module, [alias.name for alias in node.names]))


def modules_of(package: str, names: list[str]) -> Iterator[str]:
    """What `from package import names` imports: modules of a package, or the module that has the names."""
    folder = PACKAGE.parent.joinpath(*package.split("."))
    modules = [name for name in names if (folder / name).is_dir() or list(folder.glob(f"{name}.*"))]
    yield from (f"{package}.{name}" for name in modules)
    if len(modules) < len(names):
        yield package


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that import each other, each sorted (Tarjan's algorithm)."""
    found: list[list[str]] = []
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in numbers:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == numbers[module]:
            circle = stack[stack.index(module) :]
            del stack[-len(circle) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in sorted(imports):
        if module not in numbers:
            visit(module)
    return found


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


@pytest.mark.parametrize("package", ROOMS)
def test_every_module_of_a_package_with_rooms_lies_in_one(package: str) -> None:
    """It could import anything of its package."""
    folder = PACKAGE / package
    found = {
        path.relative_to(folder).parts[0] for path in sources(".py", ".pyx", ".pxd", ".pyi") if folder in path.parents
    }
    assert found - {"__init__.py"} == set(ROOMS[package])


@pytest.mark.parametrize(
    "path", [path for path in sources(".py", ".pyx", ".pxd", ".pyi") if package_of(path) in ROOMS], ids=name_of
)
def test_rooms_import_only_what_their_package_allows(path: Path) -> None:
    """A room could no longer be understood without those above it."""
    package, room = path.relative_to(PACKAGE).parts[:2]
    allowed = ROOMS[package].get(room, set()) | {room}
    rooms = [name.split(".")[2] for name in imported(path) if name.startswith(f"kbroker.{package}.")]
    assert set(rooms) <= allowed, f"{name_of(path)} imports {', '.join(sorted(set(rooms) - allowed))}"


def test_no_modules_import_each_other() -> None:
    """Neither could be understood, tested or replaced without the other; imports for types alone count, too."""
    imports: dict[str, set[str]] = {}
    for path in sources(".py", ".pyx", ".pxd", ".pyi"):
        imports.setdefault(module_of(path), set()).update(imported(path))
    for module, others in imports.items():
        imports[module] = {other for other in others if other in imports and other != module}
    assert circles(imports) == []


def test_a_circle_of_imports_is_found() -> None:
    """The test above would pass whatever is imported."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}) == [["b", "c"]]


@pytest.mark.parametrize("path", sources(".py", ".pyx"), ids=name_of)
def test_files_stay_small(path: Path) -> None:
    """A file would hold more than one concept, and grow."""
    limit = ONE_THING_LINES.get(name_of(path)) or (CYTHON_LINES if path.suffix == ".pyx" else PYTHON_LINES)
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


def classes() -> dict[str, tuple[set[str], set[str]]]:
    """Of every class by its name, its methods and its bases; stubs stand for compiled ones."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for path in sources(".py", ".pyi"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods, bases = found.setdefault(node.name, (set(), set()))
                methods |= {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                bases |= {ast.unparse(base).partition("[")[0] for base in node.bases}
    return found


CLASSES = classes()
PLAIN_BASES = {"NamedTuple", "Protocol", "Enum", "IntEnum", "Generic", "object", "Exception"}


def is_documented_elsewhere(class_name: str, method: str) -> bool:
    """Whether a base describes the method: one of ours that has it, or a library's, which may."""
    for base in CLASSES[class_name][1] - PLAIN_BASES:
        if base not in CLASSES or method in CLASSES[base][0] or is_documented_elsewhere(base, method):
            return True
    return False


def undocumented(path: Path) -> Iterator[str]:
    """The public functions and methods of public classes without a docstring, unless they override one."""

    def visit(body: list[ast.stmt], name: str, class_name: str | None) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from visit(node.body, f"{name}.{node.name}", node.name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                decorators = [ast.unparse(each) for each in node.decorator_list]
                is_silent = ast.get_docstring(node) is None and "overload" not in decorators
                if is_silent and (class_name is None or not is_documented_elsewhere(class_name, node.name)):
                    yield f"{name}.{node.name}"

    yield from visit(ast.parse(path.read_text()).body, module_of(path), None)


def test_public_functions_say_what_they_give() -> None:
    """A caller would have to read a function to know its units, its result and what it raises."""
    assert [name for path in sources(".py") for name in undocumented(path)] == []


def anys(path: Path) -> int:
    """How often a source has the type `Any`."""
    tree = ast.parse(path.read_text())
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))


PROSE = re.compile(r"\bwho (?:reads|says|names|asks)\b|\btold\b", re.IGNORECASE)


def prose(path: Path) -> Iterator[str]:
    """Docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from (line for line in source.splitlines() if line.lstrip().startswith(("#", '"""')))
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def test_sentences_name_their_subject() -> None:
    """A reader would have to find out who "who reads" is, and what tells whom where something "is told"."""
    found = [
        f"{name_of(path)}: {text}"
        for path in sources(".py", ".pyx", ".pxd")
        for text in prose(path)
        if PROSE.search(text)
    ]
    assert not found, "\n".join(found)


# Slices of another kind: the budget itself; what the kernel gives a thread; a mirror's turns between messages.
TIME_SLICES = {
    "kbroker/_fast/base/slices.pxd",
    "kbroker/host/scheduling.py",
    "kbroker/replay/player/column_sender.py",
}
OTHER_YIELD = re.compile(
    r"\bsleep\(0(?:\.0)?\)|^ *(?:_?[A-Z]+_)*(?:SLICE|WORK|PIECE)S?(?:_[A-Z]+)*_(?:S|SECONDS|MS|US|NS)\b.*=",
    re.MULTILINE,
)


def test_there_is_one_way_to_yield() -> None:
    """Each further one has a budget of its own, and takes the loop beside the others' turns: a client waits for all."""
    paths = [path for path in sources(".py", ".pyx", ".pxd") if name_of(path) not in TIME_SLICES]
    found = [
        f"{name_of(path)}: {line}" for path in paths for line in OTHER_YIELD.findall(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
    for other in (
        "    await asyncio.sleep(0)",
        "SLICE_SECONDS = 0.01",
        "    SLICE_NS = 2000000",
        "WORK_SECONDS: float = 1",
    ):
        assert OTHER_YIELD.search(other), other


def test_functions_are_short() -> None:
    """A reader would have to keep too much in mind at once."""
    long = [
        f"{name_of(path)}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in sources(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_types_are_known() -> None:
    """mypy would check nothing where `Any` stands.  What is left: JSON and options of commands, settings by name,
    messages by number, libraries without types.  A lower number goes here; a higher one needs a type instead."""
    assert sum(map(anys, sources(".py"))) <= MOST_ANYS


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

    heavy = (
        "rich",
        "confluent_kafka",
        "prometheus_client",
        "zstandard",
        "lz4",
        "snappy",
        "pyspark",
        "pyarrow",
        "opentelemetry",
    )
    code = f"import sys, kbroker.cli.start; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
