"""Faults with a name: what a broker could get wrong, each as a few lines of a unified diff against `kbroker/`.

    # A sentence that says what the fault is.
    # Found by tests/…/test_….py::test_…
    --- a/kbroker/…
    +++ b/kbroker/…
    @@ …

A patch has to fit exactly: the lines that it names stand once in the file, wherever that is by now.  The second line is
there where a test finds the fault: that test is run in place of histories.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
FOUND_BY = "# Found by "
OF_KRAFT = frozenset({"kbroker/metadata/record_deltas.py"})
"""Besides `cluster/kraft`."""


class UnfitPatchError(ValueError):
    """The tree has gone on: the patch is to be written anew."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines of a file, and what stands there afterwards."""

    path: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fault.  `found_by`: the test that finds it, as pytest names it; empty where histories have to."""

    name: str
    fault: str
    hunks: tuple[Hunk, ...]
    found_by: str = ""

    @property
    def paths(self) -> list[str]:
        """The files that it changes."""
        return sorted({hunk.path for hunk in self.hunks})

    @property
    def is_of_kraft(self) -> bool:
        """Whether no other broker goes that way than one of a KRaft cluster."""
        return all(path in OF_KRAFT or path.startswith("kbroker/cluster/kraft/") for path in self.paths)


def mutations() -> list[Mutation]:
    """All that there are."""
    return [read_mutation(path) for path in sorted(FOLDER.glob("*.patch"))]


def read_mutation(path: Path) -> Mutation:
    """Raises UnfitPatchError for what is no patch."""
    fault: list[str] = []
    hunks: list[Hunk] = []
    target = found_by = ""
    lines: list[str] = []

    def end_hunk() -> None:
        if lines:
            before = tuple(line[1:] for line in lines if line[0] in " -")
            hunks.append(Hunk(target, before, tuple(line[1:] for line in lines if line[0] in " +")))
            lines.clear()

    for line in path.read_text().splitlines():
        if line.startswith(FOUND_BY) and not target:
            found_by = line.removeprefix(FOUND_BY)
        elif line.startswith("# ") and not target:
            fault.append(line[2:])
        elif line.startswith("--- "):
            end_hunk()
        elif line.startswith("+++ b/"):
            target = line.removeprefix("+++ b/")
        elif line.startswith("@@"):
            end_hunk()
        elif line[:1] in (" ", "-", "+"):
            lines.append(line)
        elif line == "":
            lines.append(" ")
        elif line.startswith(("diff --git ", "index ")):
            end_hunk()
        else:
            raise UnfitPatchError(f"{path.name}: {line!r} is no line of a unified diff")
    end_hunk()
    if not fault or not hunks:
        raise UnfitPatchError(f"{path.name} says nothing, or changes nothing")
    return Mutation(path.stem, " ".join(fault), tuple(hunks), found_by)


def mutated(mutation: Mutation, tree: Path) -> dict[str, str]:
    """The files of a tree as the mutation would have them, by path.  Raises UnfitPatchError."""
    found: dict[str, str] = {}
    for hunk in mutation.hunks:
        path = tree / hunk.path
        if hunk.path not in found and not path.is_file():
            raise UnfitPatchError(f"{mutation.name}: there is no {hunk.path}")
        text = found.get(hunk.path) or path.read_text()
        lines, size = text.split("\n"), len(hunk.before)
        places = [at for at in range(len(lines) - size + 1) if tuple(lines[at : at + size]) == hunk.before]
        if len(places) != 1:
            raise UnfitPatchError(
                f"{mutation.name}: {hunk.path} has these lines {len(places)} times, not once: {list(hunk.before)}"
            )
        lines[places[0] : places[0] + size] = hunk.after
        found[hunk.path] = "\n".join(lines)
    return found
