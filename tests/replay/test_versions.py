"""Documents in folders without locks: of two writers one goes on, and nobody goes back behind what was published.

Also of `kbroker.replay.load.versions`.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.versions import Versions


class Memory:
    """A folder as object stores are: files whole or not there, created once."""

    uri = "memory:///"

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def names(self) -> list[str]:
        return list(self.held)

    def read(self, path: str) -> str:
        if path not in self.held:
            raise FileNotFoundError(path)
        return self.held[path]

    def create(self, path: str, text: str) -> bool:
        return self.held.setdefault(path, text) is text

    def delete(self, path: str) -> None:
        self.held.pop(path, None)


def begun(folder: Memory) -> tuple[Versions, object]:
    """A run that has the document."""
    versions = Versions(folder, "_state")
    found = versions.latest()
    versions.publish(found)
    return versions, found


def test_a_run_that_was_overtaken_publishes_nothing() -> None:
    """A run that was thought dead would bring its own state back over that of the next."""
    folder = Memory()
    first, found = begun(folder)
    assert found is None
    first.publish(1)
    second, found = begun(folder)
    assert found == 1
    with pytest.raises(LoadError, match="another run has begun"):
        first.publish(2)
    second.publish(3)
    assert Versions(folder, "_state").latest() == 3


def test_a_run_that_slept_until_its_number_was_free_again_is_told() -> None:
    """Its number had been deleted as an old one: it would go on beside the other and say that it was done."""
    folder = Memory()
    first, _ = begun(folder)
    second, _ = begun(folder)
    for number in range(5):
        second.publish(number)
    assert len(folder.held) == 2
    with pytest.raises(LoadError, match="another run has begun"):
        first.publish("late")
    assert Versions(folder, "_state").latest() == 4


def test_a_version_whose_writer_died_in_it_counts_as_not_there() -> None:
    """A load could never be run again after a crash at the wrong moment."""
    folder = Memory()
    first, _ = begun(folder)
    first.publish({"kept": True})
    for text in ("", '{"kept": tr'):
        folder.held["_state.0000000003.json"] = text
        second, found = begun(folder)
        assert found == {"kept": True}
        second.publish({"kept": True})
    assert not any(second.is_version(name) for name in ("_state.json", "x_state.0000000001.json", "_state.1.json"))


def test_a_reader_looks_again_where_versions_go_while_it_reads() -> None:
    """`load show` beside a load would say that there is none."""
    folder = Memory()
    first, _ = begun(folder)
    first.publish("old")
    reading, tries = folder.read, []

    def goes(path: str) -> str:
        if not tries:
            tries.append(path)
            for value in ("newer", "newest"):
                first.publish(value)
        return reading(path)

    folder.read = goes  # type: ignore[method-assign]
    assert Versions(folder, "_state").latest() == "newest"
    folder.read = lambda path: reading("gone")  # type: ignore[method-assign]
    with pytest.raises(LoadError, match="too quickly"):
        Versions(folder, "_state").latest()
