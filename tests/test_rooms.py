"""Where tests and what they share lie: each module of the broker is named by the test that covers it, and what several
tests use is no test itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

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


def is_named(module: str, text: str) -> bool:
    """Whether tests import or name a module."""
    package, _, name = module.rpartition(".")
    of_package = rf"from {re.escape(package)} c?import (\([^)]*|[^\n]*)\b{name}\b"
    return bool(re.search(rf"{re.escape(module)}\b", text) or re.search(of_package, text))


def test_the_test_of_each_module_is_found_by_its_name() -> None:
    """Who changes a module would not know what to run; a line in the docstring of a test that covers it names it."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (*TESTS.rglob("*.py"), *TESTS.rglob("*.pyx")))
    assert [module for module in modules() if not is_named(module, text)] == []


@pytest.mark.parametrize("folder", ["tests", "bench"])
def test_no_test_is_a_library(folder: str) -> None:
    """A change of one test would break others, and what tests share would not be found."""
    found = [
        f"{path.relative_to(TESTS.parent)}:{node.lineno} imports {node.module}"
        for path in sorted((TESTS.parent / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and re.match(r"tests(\.\w+)*\.test_\w+$", node.module)
    ]
    assert found == []
