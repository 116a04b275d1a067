"""Builds one extension per `kbroker/_fast/*.pyx`.

KBROKER_BUILD selects the build: `release` (default), `debug` (bounds checks, assertions, no optimisation that hides a
fault), `sanitize` (debug plus AddressSanitizer and UBSan) or `profile` (release code with frame pointers and symbols
for perf).  KBROKER_EXT=name[,name] builds those extensions alone.
"""

from __future__ import annotations

import os
import pathlib

from Cython.Build import cythonize
from setuptools import Extension, setup

HERE = pathlib.Path(__file__).parent
FAST = pathlib.Path("kbroker") / "_fast"

MODES: dict[str, tuple[list[str], list[str], list[tuple[str, str | None]]]] = {
    "release": (["-O3", "-fno-plt"], ["-Wl,-O1"], [("NDEBUG", None)]),
    "debug": (["-O1", "-g", "-UNDEBUG"], ["-g"], [("KBROKER_DEBUG", "1")]),
    "sanitize": (
        ["-O1", "-g", "-UNDEBUG", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"],
        ["-g", "-fsanitize=address,undefined"],
        [("KBROKER_DEBUG", "1")],
    ),
    "profile": (["-O3", "-g", "-fno-omit-frame-pointer"], ["-g"], [("NDEBUG", None)]),
}

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
    found = []
    for source in sorted((HERE / FAST).glob("*.pyx")):
        if only and source.stem not in only:
            continue
        found.append(
            Extension(
                f"kbroker._fast.{source.stem}",
                [str(FAST / source.name)],
                include_dirs=[str(FAST)],
                depends=[str(FAST / header.name) for header in sorted((HERE / FAST).glob("*.h"))],
                extra_compile_args=["-std=c11", *compile_args, *WARNINGS],
                extra_link_args=link_args,
                define_macros=macros,
            )
        )
    return found


def main() -> None:
    mode = os.environ.get("KBROKER_BUILD", "release")
    if mode not in MODES:
        raise SystemExit(f"KBROKER_BUILD={mode!r}: must be one of {', '.join(MODES)}")
    setup(
        ext_modules=cythonize(
            extensions(mode),
            compiler_directives=directives(mode),
            build_dir=f"build/cython-{mode}",
            annotate=mode == "profile",
            include_path=["."],
        )
    )


main()
