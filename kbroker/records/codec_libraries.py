"""Where the C libraries of lz4 and zstd are: in the packages `lz4` and `zstandard`, else the system's.

The packages' own extension modules carry (or are linked with) the libraries and show their names, so one version serves
both ways: `records.compression` by Python, `_fast.records.native_codecs` without.  Nothing is imported to find them.
"""

from __future__ import annotations

import functools
import importlib.util
import pathlib
from collections.abc import Iterator

from kbroker._fast.records import native_libraries

_LZ4_SYSTEM = b"liblz4.so.1"
_ZSTD_SYSTEM = b"libzstd.so.1"


def _modules_of(package: str, pattern: str) -> Iterator[bytes]:
    spec = importlib.util.find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        for path in sorted(pathlib.Path(place).glob(pattern)):
            yield bytes(path)


@functools.cache
def native_codecs_loaded() -> frozenset[int]:
    """The codecs that C serves; opens the libraries at the first call."""
    return native_libraries.load(
        [*_modules_of("lz4", "frame/_frame*.so"), _LZ4_SYSTEM],
        [*_modules_of("zstandard", "_cffi*.so"), *_modules_of("zstandard", "backend_c*.so"), _ZSTD_SYSTEM],
    )
