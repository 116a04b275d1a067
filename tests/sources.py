"""What the rules of the house ask of the broker's sources.

Each file is read and parsed once, and no tree is kept: those of all files would be some 200 MB.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import kbroker

PACKAGE = Path(kbroker.__file__).parent
TESTS = Path(__file__).parent
_CIMPORT = re.compile(
    r"^\s*from\s+(kbroker[\w.]*)\s+c?import\s+(\([^)]*\)|.*)|^\s*c?import\s+(kbroker[\w.]*)", re.MULTILINE
)
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Method:
    """A public function without a docstring, or such a method of a public class."""

    name: str
    class_name: str | None
    method: str


@dataclass(frozen=True, slots=True)
class Source:
    """One source: its lines, the dotted names under kbroker that it imports wherever in it, and what its functions say.

    Classes are given by their names, each with its methods and its bases.  Only the first two are known of Cython's.
    """

    path: Path
    lines: int
    imported: tuple[str, ...]
    relative: tuple[int, ...] = ()
    is_silent: bool = False
    anys: int = 0
    functions: tuple[tuple[str, int], ...] = ()
    docstrings: tuple[str, ...] = ()
    undocumented: tuple[Method, ...] = ()
    classes: tuple[tuple[str, frozenset[str], frozenset[str]], ...] = ()

    @property
    def name(self) -> str:
        """Its path in the repository."""
        return name_of(self.path)

    @property
    def module(self) -> str:
        """Its dotted name."""
        return ".".join(self.path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")

    @property
    def package(self) -> str:
        """The package, or the module right under `kbroker`, that it belongs to."""
        return self.path.relative_to(PACKAGE).parts[0].partition(".")[0]


def name_of(path: Path) -> str:
    """A source's path in the repository."""
    return str(path.relative_to(PACKAGE.parent))


def sources(*suffixes: str) -> list[Source]:
    """The sources of these kinds."""
    return [read(path) for suffix in suffixes for path in paths(suffix)]


@cache
def paths(suffix: str) -> tuple[Path, ...]:
    """Where sources of a kind lie."""
    return tuple(sorted(PACKAGE.rglob(f"*{suffix}")))


@cache
def read(path: Path) -> Source:
    """What the rules ask of one source."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if path.suffix in (".pyx", ".pxd"):
        return Source(path, lines, tuple(_imported_by_c(text)))
    tree = ast.parse(text)
    nodes = list(statements(tree))
    functions = [node for node in nodes if isinstance(node, Function)]
    return Source(
        path,
        lines,
        tuple(_imported(nodes)),
        tuple(node.lineno for node in nodes if isinstance(node, ast.ImportFrom) and node.level),
        bool(text.strip()) and ast.get_docstring(tree) is None,
        sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree)) if "Any" in text else 0,
        tuple((node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions),
        tuple(ast.get_docstring(each) or "" for each in (tree, *nodes) if isinstance(each, DOCUMENTED)),
        tuple(_undocumented(tree.body, Source(path, lines, ()).module, None)),
        tuple(_class(node) for node in nodes if isinstance(node, ast.ClassDef)),
    )


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements and handlers in a tree; what is in expressions is passed over."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for field in _BODIES:
            body = getattr(node, field, None)
            if isinstance(body, list):
                waiting += body
                yield from body


def _imported_by_c(text: str) -> Iterator[str]:
    for match in _CIMPORT.finditer(text):
        yield from [match[3]] if match[3] else modules_of(match[1], tuple(re.findall(r"\w+", match[2])))


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "kbroker")
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "kbroker":
            yield from modules_of(node.module, tuple(alias.name for alias in node.names))


@cache
def _is_module(folder: Path, name: str) -> bool:
    return (folder / name).is_dir() or any(folder.glob(f"{name}.*"))


@cache
def modules_of(package: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """What `from package import names` imports: modules of a package, or the module that has the names."""
    folder = PACKAGE.parent.joinpath(*package.split("."))
    modules = [name for name in names if _is_module(folder, name)] if folder.is_dir() else []
    return (*(f"{package}.{name}" for name in modules), *([package] if len(modules) < len(names) else ()))


@cache
def part_of(name: str) -> str:
    """The package behind a dotted name; names that `kbroker` itself defines belong to its `__init__`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and _is_module(PACKAGE, parts[1]) else "__init__"


def _undocumented(body: list[ast.stmt], name: str, class_name: str | None) -> Iterator[Method]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _undocumented(node.body, f"{name}.{node.name}", node.name)
        elif isinstance(node, Function) and not node.name.startswith("_") and ast.get_docstring(node) is None:
            is_one_of_several = any(ast.unparse(each) == "overload" for each in node.decorator_list)
            yield from () if is_one_of_several else [Method(f"{name}.{node.name}", class_name, node.name)]


def _class(node: ast.ClassDef) -> tuple[str, frozenset[str], frozenset[str]]:
    methods = frozenset(each.name for each in node.body if isinstance(each, Function))
    return node.name, methods, frozenset(ast.unparse(base).partition("[")[0] for base in node.bases)
