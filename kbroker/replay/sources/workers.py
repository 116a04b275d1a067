"""Saves Spark's Python workers the work that they would repeat for every task.

Spark's workers import PySpark from `pyspark.zip` and have Spark's core jar on their path.  Each task, planning and
commit begins with `importlib.invalidate_caches()`, after which Python 3.11 reads the directory of an archive anew, once
for every package that was ever looked for in it.  In Python that takes 5 ms for PySpark's 1,200 files and 18 ms for the
5,000 of the jar: 80 to 95 ms before a worker begins to work, five times in a query.  These archives do not change while
a worker lives, so modules are still found by the directory that Python has read once.

Each task also ends with `gc.collect()`, which takes 35 to 45 ms to walk every object of PySpark, PyArrow and NumPy.
All objects that exist when a worker first uses this module are exempted (`gc.freeze`).
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Mapping

# Spark sets it for workers that it means to use for more than one task.
WORKERS_SIGN = "SPARK_REUSE_WORKER"
_SPARKS_OWN = re.compile(r"[/\\](pyspark\.zip|py4j-[^/\\]*-src\.zip|spark-core_[^/\\]*\.jar)(?=$|[/\\])")


_frozen = False


def settle() -> None:
    """Makes this process's next tasks cheaper; elsewhere than in a worker of Spark's it leaves the collector alone."""
    global _frozen
    forget_spark_archives()
    if not _frozen and WORKERS_SIGN in os.environ:
        _frozen = True
        gc.freeze()


def is_sparks_archive(entry: str) -> bool:
    """Whether this entry of a module path is, or lies within, an archive that comes with Spark."""
    return _SPARKS_OWN.search(entry) is not None


def forget_spark_archives() -> None:
    """Drops what this process would look through again in Spark's own archives; those of users are left alone."""
    for entry in [entry for entry in sys.path if entry.endswith(".jar") and is_sparks_archive(entry)]:
        # The jar holds no module.
        sys.path.remove(entry)
    for entry in [entry for entry in sys.path_importer_cache if is_sparks_archive(entry)]:
        del sys.path_importer_cache[entry]


class FromSpark:
    """Base of the objects that Spark makes in a worker or sends to it; their arrival calls `settle`."""

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)
        settle()

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)
        settle()
