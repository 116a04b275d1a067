"""What a test does when a program it needs is not installed.

A missing tool is a skip that says how to get it; with `CI=true` it is a failure, so that a run nobody watches cannot
quietly test less.
"""

from __future__ import annotations

import os
import shutil

import pytest

HOW = "`make test-tools` installs it"


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


def missing(what: str, how: str = HOW) -> None:
    """Skips the test for want of `what`; fails it in CI."""
    message = f"needs {what}: {how}"
    if in_ci():
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def require_tool(name: str) -> str:
    """The path of program `name`; skips (in CI: fails) the test when there is none."""
    path = shutil.which(name)
    if path is None:
        missing(name)
        raise AssertionError("unreachable")
    return path


def require_module(name: str) -> None:
    """Skips (in CI: fails) the test when Python package `name` is not installed."""
    import importlib.util

    if importlib.util.find_spec(name) is None:
        missing(f"the Python package {name}", "`make test` installs it")
