"""The rules of the house that a machine can check: layers, file sizes, what Cython sources may not use.

Layers, from the bottom; a module imports from its own package and from packages below, never from above.  `PACKAGES`
lists for each package all that it may import, `ROOMS` the same within the packages that have rooms.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import PACKAGE, TESTS, name_of, part_of, paths, read, sources, statements

OF_ANY_KIND = (".py", ".pyx", ".pxd", ".pyi")
PYTHON_LINES = 500
CYTHON_LINES = 400
FOLDER_MODULES = 40
MOST_ANYS = 89
FUNCTION_LINES = 60
# Files that hold one class, or one way of a thing from its beginning to its end, which would be no clearer in two.
ONE_THING_LINES = {
    "kbroker/cluster/raft/machine.py": 590,
    "kbroker/cluster/raft/replica.py": 630,
    "kbroker/replication/partition.py": 550,
    "kbroker/storage/directories/future_log.py": 550,
    "kbroker/storage/recovery/log_loader.py": 600,
    "kbroker/storage/log/log_segment.py": 600,
    "kbroker/storage/manager/log_manager.py": 600,
    "kbroker/storage/log/unified_log.py": 620,
}

BASE = {"__init__", "authorities", "backoff", "clock", "error_codes", "errors", "nearest", "own_python", "types"}
BASE |= {"java_patterns", "patterns", "waiting"}
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
ADMINISTRATION = SECURITY | {"administration"}
CONSOLE = HANDLERS | ADMINISTRATION | {"console"}
STARTUP = STORAGE | METADATA | {"startup"}
MIGRATION = REPLICATION | STARTUP | {"migration"}
ASSEMBLY = CONSOLE | MIGRATION | {"assembly"}
BROKER = ASSEMBLY | {"broker"}
CLIENT = ADMINISTRATION | {"client"}
REPLAY = STORAGE | CLIENT | REGISTRY | {"replay"}

PACKAGES: dict[str, set[str]] = {
    "__init__": set(),
    "types": {"__init__"},
    "errors": {"__init__", "error_codes"},
    "error_codes": {"__init__"},
    "backoff": {"__init__"},
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
    "administration": ADMINISTRATION,
    "console": CONSOLE,
    "assembly": ASSEMBLY,
    "broker": BROKER,
    "supervision": BROKER | {"supervision"},
    "client": CLIENT,
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
        "gate": set(),
        "net": {"base", "files", "wire", "log", "gate"},
        "tls": {"base", "files", "wire", "log", "net"},
        "requests": {"base", "files", "wire", "records", "log", "net", "gate"},
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


def test_every_package_has_a_place_in_the_layers() -> None:
    """A new package could import anything."""
    assert {source.package for source in sources(*OF_ANY_KIND)} <= set(PACKAGES)


def test_lower_layers_do_not_import_higher_ones() -> None:
    """A part could no longer be understood, tested or replaced without those above it."""
    found = [
        f"{source.name} imports {name}"
        for source in sources(*OF_ANY_KIND)
        for name in sorted({*source.imported})
        if part_of(name) not in PACKAGES[source.package] | {source.package}
    ]
    assert not found, "\n".join(found)


def test_the_spark_pipeline_is_imported_by_its_commands_alone() -> None:
    """A broker would need Spark's packages, or load modules that it never uses."""
    found = [
        source.name
        for source in sources(*OF_ANY_KIND)
        if any(name.startswith("kbroker.replay") for name in source.imported)
        and not source.name.startswith(("kbroker/replay/", "kbroker/cli/spark/"))
    ]
    assert not found, "\n".join(found)


def test_no_import_has_a_relative_name() -> None:
    """The rules of the layers would not see what it imports."""
    found = [f"{source.name}:{line}" for source in sources(".py", ".pyi") for line in source.relative]
    assert not found, "\n".join(found)


def test_every_module_of_a_package_with_rooms_lies_in_one() -> None:
    """It could import anything of its package."""
    found: dict[str, set[str]] = {package: set() for package in ROOMS}
    for source in sources(*OF_ANY_KIND):
        if source.package in found:
            found[source.package].add(source.path.relative_to(PACKAGE).parts[1])
    assert {package: rooms - {"__init__.py"} for package, rooms in found.items()} == {
        package: {*rooms} for package, rooms in ROOMS.items()
    }


def test_rooms_import_only_what_their_package_allows() -> None:
    """A room could no longer be understood without those above it."""
    found = []
    for source in sources(*OF_ANY_KIND):
        if source.package not in ROOMS:
            continue
        package, room = source.path.relative_to(PACKAGE).parts[:2]
        allowed = ROOMS[package].get(room, set()) | {room}
        rooms = {name.split(".")[2] for name in source.imported if name.startswith(f"kbroker.{package}.")}
        found += [f"{source.name} imports {each}" for each in sorted(rooms - allowed)]
    assert not found, "\n".join(found)


def test_no_modules_import_each_other() -> None:
    """Neither could be understood, tested or replaced without the other; imports for types alone count, too."""
    imports: dict[str, set[str]] = {}
    for source in sources(*OF_ANY_KIND):
        imports.setdefault(source.module, set()).update(source.imported)
    for module, others in imports.items():
        imports[module] = {other for other in others if other in imports and other != module}
    assert circles(imports) == []


def test_a_circle_of_imports_is_found() -> None:
    """The test above would pass whatever is imported."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}) == [["b", "c"]]


def test_files_stay_small() -> None:
    """A file would hold more than one concept, and grow."""
    found = []
    for source in sources(".py", ".pyx"):
        limit = CYTHON_LINES if source.path.suffix == ".pyx" else PYTHON_LINES
        limit = ONE_THING_LINES.get(source.name, limit)
        if source.lines > limit:
            found.append(f"{source.name} has {source.lines} lines, {limit} are allowed")
    assert not found, "\n".join(found)


def test_folders_stay_small() -> None:
    """A reader would look for a module by luck."""
    modules = Counter(source.path.parent for source in sources(".py", ".pyx"))
    found = [f"{name_of(folder)} has {count} modules" for folder, count in modules.items() if count > FOLDER_MODULES]
    assert not found, f"{FOLDER_MODULES} are allowed: " + "\n".join(found)


def test_test_files_stay_small() -> None:
    """Nobody would find the test that covers a behaviour."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(TESTS.rglob("*.py"))}
    found = [f"{path.relative_to(TESTS)} has {count} lines" for path, count in lines.items() if count > PYTHON_LINES]
    assert not found, f"{PYTHON_LINES} are allowed: " + "\n".join(found)


def test_cython_shares_code_by_cimport() -> None:
    """Included text has no imports of its own, and DEF and IF are going away."""
    found = []
    for path in (*paths(".pyx"), *paths(".pxd")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^\s*include\s+[\"']", text, re.MULTILINE):
            found.append(f"{name_of(path)} uses include")
        if re.search(r"^\s*(DEF\s+\w+\s*=|IF\s+.*:\s*$)", text, re.MULTILINE):
            found.append(f"{name_of(path)} uses DEF or IF")
    assert not found, "\n".join(found)


def test_extensions_have_type_stubs() -> None:
    """mypy would see nothing of what Python calls in an extension."""
    assert [name_of(path) for path in paths(".pyx") if not path.with_suffix(".pyi").exists()] == []


def test_every_module_says_what_it_is() -> None:
    """A reader would have to guess a module's purpose from its code."""
    assert [source.name for source in sources(".py") if source.is_silent] == []


@cache
def classes() -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Of every class by its name, its methods and its bases; stubs stand for compiled ones."""
    found: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for source in sources(".py", ".pyi"):
        for name, methods, bases in source.classes:
            before = found.get(name, (frozenset(), frozenset()))
            found[name] = (before[0] | methods, before[1] | bases)
    return found


PLAIN_BASES = {"NamedTuple", "Protocol", "Enum", "IntEnum", "Generic", "object", "Exception"}


def is_documented_elsewhere(class_name: str, method: str) -> bool:
    """Whether a base describes the method: one of ours that has it, or a library's, which may."""
    known = classes()
    for base in known[class_name][1] - PLAIN_BASES:
        if base not in known or method in known[base][0] or is_documented_elsewhere(base, method):
            return True
    return False


def test_public_functions_say_what_they_give() -> None:
    """A caller would have to read a function to know its units, its result and what it raises."""
    silent = [
        each.name
        for source in sources(".py")
        for each in source.undocumented
        if each.class_name is None or not is_documented_elsewhere(each.class_name, each.method)
    ]
    assert silent == []


PROSE = re.compile(r"\bwho (?:reads|says|names|asks)\b|\btold\b", re.IGNORECASE)


def prose(path: Path) -> Iterator[str]:
    """Docstrings and comments, of a file that has such words somewhere."""
    text = path.read_text(encoding="utf-8")
    if not PROSE.search(text):
        return
    if path.suffix != ".py":
        yield from (line for line in text.splitlines() if line.lstrip().startswith(("#", '"""')))
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    yield from read(path).docstrings


def test_sentences_name_their_subject() -> None:
    """A reader would have to find out who "who reads" is, and what tells whom where something "is told"."""
    found = [
        f"{name_of(path)}: {text}"
        for path in (*paths(".py"), *paths(".pyx"), *paths(".pxd"))
        for text in prose(path)
        if PROSE.search(text)
    ]
    assert not found, "\n".join(found)


MANNERED_WORDS = {"nobody": 0, "somebody": 0, "told": 1, "whatever": 9, "whoever": 0}
"""How often each stands in the sources: these numbers only go down."""


def test_mannered_words_do_not_come_back() -> None:
    """A sentence would have no subject that a reader knows."""
    texts = (path.read_text(encoding="utf-8").lower() for path in (*paths(".py"), *paths(".pyx"), *paths(".pxd")))
    found = Counter(word for text in texts for word in re.findall(r"\w+", text) if word in MANNERED_WORDS)
    assert dict(found) == {word: count for word, count in MANNERED_WORDS.items() if count}


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
    places = [path for kind in (".py", ".pyx", ".pxd") for path in paths(kind) if name_of(path) not in TIME_SLICES]
    found = [
        f"{name_of(path)}: {line}" for path in places for line in OTHER_YIELD.findall(path.read_text(encoding="utf-8"))
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
        f"{source.name}: {name} has {lines} lines"
        for source in sources(".py")
        for name, lines in source.functions
        if lines > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_types_are_known() -> None:
    """mypy would check nothing where `Any` stands.  What is left: JSON and options of commands, settings by name,
    messages by number, libraries without types.  A lower number goes here; a higher one needs a type instead."""
    assert sum(source.anys for source in sources(".py")) <= MOST_ANYS


def test_tests_say_what_would_be_lost() -> None:
    """A failing test would not tell whether it matters."""
    silent = []
    for path in TESTS.rglob("test_*.py"):
        for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
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
