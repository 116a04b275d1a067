"""Keeps Spark's Python workers from reading the index of Spark's own jar again for every task.

Spark puts its core jar on the path of its workers, and each task, planning and commit begins with
`importlib.invalidate_caches()`, for which Python reads the list of some 5,000 class files in that jar anew: 25 to
100 ms, three to five times in a query.  The jar holds no Python module.  Workers are used again for later tasks, so
leaving it out in a worker that has met our sources once saves that from the second query on.
"""

from __future__ import annotations

import sys
from pathlib import PurePath


def leave_out_spark_jar() -> None:
    """Takes Spark's core jar off this process's module path; jars of others stay, as they may hold modules."""
    found = [entry for entry in sys.path if _is_spark_jar(entry)]
    for entry in found:
        sys.path.remove(entry)
        sys.path_importer_cache.pop(entry, None)


def _is_spark_jar(entry: str) -> bool:
    name = PurePath(entry).name
    return name.startswith("spark-core_") and name.endswith(".jar")
