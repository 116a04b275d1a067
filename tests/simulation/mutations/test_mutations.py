"""The faults that the simulation is held against: each patch fits the tree, and the simulation finds one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.mutations.__main__ import find, find_by_test
from tests.simulation.mutations.mutant import ROOT
from tests.simulation.mutations.patches import Mutation, UnfitPatchError, mutated, mutations, read_mutation
from tests.simulation.mutations.unfound import UNFOUND

LEAST = 20
EARLY = "answered-without-acks"
BY_A_TEST = "a-sessions-epoch-wraps-to-zero"
OTHER_TEST = "test_an_unknown_session_is_refused"
PATCH = "# A fault.\n--- a/kbroker/a.py\n+++ b/kbroker/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"


def test_every_mutation_fits_the_tree() -> None:
    """A fault that cannot be put into the code any more would be found no more, and nobody would learn of it."""
    found = mutations()
    for each in found:
        for path, text in mutated(each, ROOT).items():
            assert path.startswith("kbroker/"), each.name
            assert text != (ROOT / path).read_text(), f"{each.name} changes nothing in {path}"
    assert sum(not each.found_by and each.name not in UNFOUND for each in found) >= LEAST


def test_every_test_that_finds_a_mutation_is_there() -> None:
    """A fault whose test has another name by now would be found no more, and nothing would say so before a long run."""
    for each in mutations():
        if each.found_by:
            path, _, name = each.found_by.partition("[")[0].rpartition("::")
            assert (ROOT / path).is_file(), each.name
            assert f"def {name}(" in (ROOT / path).read_text(), (each.name, each.found_by)


def test_a_mutation_that_a_test_finds_is_not_among_those_that_are_not_found() -> None:
    """A fault would be called open that a test finds, and nobody would look."""
    assert not {each.name for each in mutations() if each.found_by} & UNFOUND.keys()


def test_what_is_not_found_has_a_mutation_and_a_reason() -> None:
    """The list of what the simulation cannot find could go on about faults that are no more."""
    names = {each.name for each in mutations()}
    assert all(name in names and reason for name, reason in UNFOUND.items())


def test_a_patch_whose_lines_are_not_there_once_is_refused(tmp_path: Path) -> None:
    """A fault could be put into another place than the one that it names."""
    patch, target = tmp_path / "fault.patch", tmp_path / "kbroker" / "a.py"
    patch.write_text(PATCH)
    target.parent.mkdir()
    mutation = read_mutation(patch)
    target.write_text("zero\none\ntwo\n")
    assert mutated(mutation, tmp_path) == {"kbroker/a.py": "zero\none\nthree\n"}
    for text in ("one\n", "one\ntwo\none\ntwo\n"):
        target.write_text(text)
        with pytest.raises(UnfitPatchError):
            mutated(mutation, tmp_path)


def test_a_patch_names_the_test_that_finds_it(tmp_path: Path) -> None:
    """Histories would be played for a fault that none of them can find."""
    patch = tmp_path / "fault.patch"
    patch.write_text(PATCH.replace("# A fault.\n", "# A fault.\n# Found by tests/test_a.py::test_b[c d]\n"))
    mutation = read_mutation(patch)
    assert (mutation.fault, mutation.found_by) == ("A fault.", "tests/test_a.py::test_b[c d]")


@pytest.mark.slow
def test_a_mutation_is_found_by_the_test_that_its_patch_names() -> None:
    """A test that fails without the fault, or passes with it, would count as one that finds it."""
    mutation = _named(BY_A_TEST)
    assert mutation.found_by
    assert find_by_test(mutation, ROOT, [mutation.found_by]) == mutation.found_by
    path, _, _ = mutation.found_by.partition("::")
    assert find_by_test(mutation, ROOT, [f"{path}::{OTHER_TEST}"]) is None


@pytest.mark.slow
def test_a_mutation_is_built_and_found() -> None:
    """`make mutations` could find nothing whatever is wrong."""
    found = find(_named(EARLY), ROOT, first=1, most=20, workers=2)
    assert found.seed is not None
    assert "did not ask for" in found.violation


def _named(name: str) -> Mutation:
    (mutation,) = (each for each in mutations() if each.name == name)
    return mutation
