"""Where tests and what they share lie: each module of the broker is named by the test that covers it, and what several
tests use is no test itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.sources import statements

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "kbroker"


def modules() -> list[str]:
    """The broker's modules, by their dotted names."""
    return sorted(
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for suffix in (".py", ".pyx")
        for path in PACKAGE.rglob(f"*{suffix}")
        if path.name != "__init__.py"
    )


def named(text: str) -> set[str]:
    """The modules that tests import or name."""
    found: set[str] = set()
    for name in {*re.findall(r"kbroker(?:\.\w+)+", text)}:
        parts = name.split(".")
        found.update(".".join(parts[:end]) for end in range(2, len(parts) + 1))
    for package, names in {*re.findall(r"from (kbroker[\w.]*) c?import (\([^)]*|[^\n]*)", text)}:
        found.update(f"{package}.{name}" for name in re.findall(r"\w+", names))
    return found


def test_the_test_of_each_module_is_found_by_its_name() -> None:
    """Who changes a module would not know what to run; a line in the docstring of a test that covers it names it."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (*TESTS.rglob("*.py"), *TESTS.rglob("*.pyx")))
    known = named(text)
    assert [module for module in modules() if module not in known] == []


def test_no_test_is_a_library() -> None:
    """A change of one test would break others, and what tests share would not be found."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for folder in ("tests", "bench")
        for path in sorted((TESTS.parent / folder).rglob("*.py"))
    }
    found = [
        f"{path.relative_to(TESTS.parent)}:{node.lineno} imports {node.module}"
        for path, text in texts.items()
        if re.search(r"from\s+tests[\w.]*\.test_\w", text)
        for node in statements(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and re.match(r"tests(\.\w+)*\.test_\w+$", node.module)
    ]
    assert not found, "\n".join(found)
