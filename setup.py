"""Builds one extension per `.pyx` under `kbroker/_fast`.

KBROKER_BUILD selects the build: `release` (default), `debug` (bounds checks, assertions, no optimisation that hides a
fault), `sanitize` (debug plus AddressSanitizer and UBSan), `profile` (release code with frame pointers and symbols
for perf) or `coverage` (each line of connections, requests and the log tells coverage.py that it is reached; the C
files lie where it looks for them).  KBROKER_EXT=name[,name] builds those extensions alone, KBROKER_TEST_EXTENSIONS=1
those of `tests/extensions` as well, which no package holds.  All processors that this process may use translate and
compile, however the build was started.
"""

from __future__ import annotations

import os
import pathlib
import subprocess

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).parent
FAST = pathlib.Path("kbroker") / "_fast"
STAMP = HERE / "kbroker" / "commit.txt"
FOR_TESTS = pathlib.Path("tests") / "extensions"

MODES: dict[str, tuple[list[str], list[str], list[tuple[str, str | None]]]] = {
    "release": (["-O3", "-fno-plt"], ["-Wl,-O1"], [("NDEBUG", None)]),
    "debug": (["-O1", "-g", "-UNDEBUG"], ["-g"], [("KBROKER_DEBUG", "1")]),
    "sanitize": (
        ["-O1", "-g", "-UNDEBUG", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"],
        ["-g", "-fsanitize=address,undefined"],
        [("KBROKER_DEBUG", "1")],
    ),
    "profile": (["-O3", "-g", "-fno-omit-frame-pointer"], ["-g"], [("NDEBUG", None)]),
    "coverage": (["-O1", "-UNDEBUG"], [], [("KBROKER_DEBUG", "1")]),
}
JOBS = len(os.sched_getaffinity(0))
TRACED = tuple(f"kbroker._fast.{room}." for room in ("net", "tls", "requests", "log"))

WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-unused-function"]


def directives(mode: str) -> dict[str, object]:
    checked = mode in ("debug", "sanitize")
    return {
        "language_level": 3,
        "binding": False,
        "boundscheck": checked,
        "wraparound": False,
        "initializedcheck": checked,
        "nonecheck": False,  # refuses `self.x += 1` without the GIL, where there is nothing to check
        "cdivision": True,
        "overflowcheck": False,
        "embedsignature": True,
        "freethreading_compatible": False,
    }


def extensions(mode: str) -> list[Extension]:
    compile_args, link_args, macros = MODES[mode]
    only = set(filter(None, os.environ.get("KBROKER_EXT", "").split(",")))
    folders = [FAST, FOR_TESTS] if os.environ.get("KBROKER_TEST_EXTENSIONS") else [FAST]
    sources = [path.relative_to(HERE) for folder in folders for path in sorted((HERE / folder).rglob("*.pyx"))]
    headers = [path.relative_to(HERE) for path in sorted((HERE / FAST).rglob("*.h"))]
    found = []
    for source in sources:
        if only and source.stem not in only:
            continue
        found.append(
            Extension(
                ".".join(source.with_suffix("").parts),
                [str(source)],
                include_dirs=sorted({str(header.parent) for header in headers}),
                depends=[str(header) for header in headers],
                extra_compile_args=["-std=c11", *compile_args, *WARNINGS],
                extra_link_args=link_args,
                define_macros=macros,
            )
        )
    return found


def translated(mode: str) -> list[Extension]:
    """The extensions, as C."""
    found = extensions(mode)
    traced = [each for each in found if mode == "coverage" and each.name.startswith(TRACED)]
    for each in traced:
        each.define_macros.append(("CYTHON_TRACE_NOGIL", "1"))
    made = []
    for some in ([each for each in found if each not in traced], traced):
        made += cythonize(
            some,
            compiler_directives={**directives(mode), "linetrace": some is traced},
            build_dir=None if some is traced else f"build/cython-{mode}",
            annotate=mode == "profile",
            include_path=["."],
            nthreads=JOBS if JOBS > 1 else 0,
        )
    return made


def remove_stale() -> None:
    """Remove extensions that an earlier build made of sources that are gone: a wheel would hold them."""
    for tree in (HERE, *HERE.glob("build/lib*")):
        for built in (tree / FAST).rglob("*.so"):
            source = HERE / built.relative_to(tree).with_name(built.name.partition(".")[0] + ".pyx")
            if not source.exists():
                built.unlink()


def commit() -> str:
    """The commit that is built: of an sdist what is written in it, else what git says; empty: not known."""
    if STAMP.exists():
        return STAMP.read_text()
    command = ("git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
    return said if (HERE / ".git").exists() else ""


class StampedBuild(build_py):
    """Writes the commit into the package, for `kbroker --version`."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode and commit():
            target = pathlib.Path(self.build_lib) / "kbroker" / STAMP.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(commit())


class StampedArchive(sdist):
    """The same in the sdist, of which wheels are built."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        if commit():
            (pathlib.Path(base_dir) / "kbroker" / STAMP.name).write_text(commit())


def main() -> None:
    mode = os.environ.get("KBROKER_BUILD", "release")
    if mode not in MODES:
        raise SystemExit(f"KBROKER_BUILD={mode!r}: must be one of {', '.join(MODES)}")
    remove_stale()
    setup(
        cmdclass={"build_py": StampedBuild, "sdist": StampedArchive},
        options={"build_ext": {"parallel": JOBS}},
        ext_modules=translated(mode),
    )


if __name__ == "__main__":
    main()
