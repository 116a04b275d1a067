"""Cython's annotated HTML for each extension, and how many of its lines still call into Python.

    python profiling/annotate.py [NAME ...] [--lines N] [--output FOLDER]

A line's score is Cython's: roughly the number of C-API calls that it became.  Lines of plain C score 0.  Definitions,
imports and docstrings score too, so read the numbers against the file's `def`s, and mind the lines in hot loops.
"""

from __future__ import annotations

import argparse
import ast
import html
import pathlib
import re
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
FAST = ROOT / "kbroker" / "_fast"
_LINE = re.compile(
    r'<pre class="cython line score-(\d+)"[^>]*>(?:<span class="">)?[+&]?.*?<span class="">(\d+)</span>: (.*?)</pre>',
    re.DOTALL,
)
_TAG = re.compile(r"<[^>]+>")


@dataclass(frozen=True, slots=True)
class Line:
    """One source line with its score."""

    number: int
    score: int
    source: str


def directives() -> dict[str, object]:
    """The compiler directives of a release build, read from setup.py so that both see the same code."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "directives":
            scope: dict[str, object] = {}
            exec(compile(ast.Module([node], []), "setup.py", "exec"), scope)  # our own build file
            found: dict[str, object] = scope["directives"]("release")  # type: ignore[operator]
            return found
    raise SystemExit("setup.py has no function directives(mode)")


def annotate(source: pathlib.Path, output: pathlib.Path) -> list[Line]:
    """Write the HTML of one file and return its lines."""
    from Cython.Compiler.Main import compile_single
    from Cython.Compiler.Options import CompilationOptions, default_options

    target = output / f"{source.stem}.c"
    options = CompilationOptions(  # type: ignore[no-untyped-call]
        default_options,
        annotate="default",
        compiler_directives=directives(),
        include_path=[str(ROOT)],
        output_file=str(target),
    )
    module = ".".join(source.relative_to(ROOT).with_suffix("").parts)
    result = compile_single(str(source), options, full_module_name=module)  # type: ignore[no-untyped-call]
    if result.num_errors:
        raise SystemExit(f"{source.name} does not compile")
    target.unlink(missing_ok=True)
    return parse(target.with_suffix(".html").read_text())


def parse(text: str) -> list[Line]:
    """The scored lines of an annotated page."""
    return [
        Line(int(number), int(score), html.unescape(_TAG.sub("", source)).rstrip())
        for score, number, source in _LINE.findall(text)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="extensions by name; all when not given")
    parser.add_argument("--lines", type=int, default=0, help="show the N dearest lines of each file")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "annotate")
    arguments = parser.parse_args()
    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    known = {path.stem: path for path in sorted(FAST.rglob("*.pyx"))}
    if unknown := [name for name in arguments.names if name not in known]:
        raise SystemExit(f"there is no {', '.join(unknown)}")
    sources = [known[name] for name in arguments.names or known]
    print(f"{'file':<24}{'lines':>7}{'touch Python':>14}{'score':>8}")
    for source in sources:
        lines = annotate(source, output)
        touching = [line for line in lines if line.score > 0]
        print(f"{source.name:<24}{len(lines):>7}{len(touching):>14}{sum(line.score for line in lines):>8}")
        for line in sorted(touching, key=lambda one: -one.score)[: arguments.lines]:
            print(f"    {line.score:>5}  {line.number:>4}: {line.source.strip()[:90]}")
    print(f"pages: {output}", file=sys.stderr)


if __name__ == "__main__":
    main()
