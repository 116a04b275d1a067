"""What Spark should run as its workers' Python: this interpreter, with imports that are made once and from bytecode.

For each kind of worker (look-up, making a source, planning, reading, writing, committing) Spark starts a daemon,
`python -m pyspark.daemon KIND`, that forks the workers.  Its path begins with `pyspark.zip`, without bytecode: each
daemon compiles PySpark anew, 0.4 s of a processor.  Then each worker that it forks imports PyArrow and this package for
itself, 0.25 s.  A query's first rows wait for four such daemons, one after the other.

The command `kbroker-spark-python` (`main`) stands in for the interpreter: as a daemon it imports the installed PySpark,
if that has the archive's version, and the modules that workers need, before it forks them.  All other command lines it
passes to the interpreter unchanged, so it can be PYSPARK_PYTHON wherever the package is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys
import sysconfig
import zipimport
from importlib.machinery import PathFinder
from pathlib import Path

from kbroker.replay.sources.workers import forget_spark_archives, is_sparks_archive

COMMAND = "kbroker-spark-python"
DAEMON = "pyspark.daemon"
# The kind of worker that looks for sources which need no registration, and so makes none.
LOOKS_UP = "pyspark.sql.worker.lookup_data_sources"
EARLY = ("pyarrow", "kbroker.replay.sources.datasources")


def workers_python() -> str:
    """The path of `kbroker-spark-python` where it was installed for this very interpreter, else the interpreter's."""
    command = Path(sysconfig.get_path("scripts")) / COMMAND
    try:
        with command.open("rb") as script:
            first = script.readline()
        named = Path(os.fsdecode(first.removeprefix(b"#!").strip()))
        # Several versions of Python may install into one directory: the last one's commands are there.
        own = named.parent == Path(sys.executable).parent and named.samefile(sys.executable)
    except OSError:
        own = False
    return str(command) if own and os.access(command, os.X_OK) else sys.executable


def main() -> None:
    """`kbroker-spark-python …`: what `python …` would do."""
    arguments = sys.argv[1:]
    if arguments[:2] != ["-m", DAEMON]:
        os.execv(sys.executable, [sys.executable, *arguments])
    installed = [entry for entry in sys.path if not is_sparks_archive(entry)]
    if _has_pyspark_of(sys.path, installed):
        sys.path[:] = installed
        forget_spark_archives()
    kind = arguments[2:3]
    for name in ("pyspark", *kind, *(EARLY if kind != [LOOKS_UP] else ())):
        # A module that cannot be imported fails where it is used, with Spark's own error.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if not sys.flags.safe_path:
        # As `-m` has it: functions may come from modules beside the driver.  Those of Spark and this package do not:
        # they have been imported by now.
        sys.path[0] = str(Path.cwd())
    sys.argv[1:] = kind
    runpy.run_module(DAEMON, run_name="__main__", alter_sys=True)


def _has_pyspark_of(path: list[str], installed: list[str]) -> bool:
    """Whether `installed` has py4j, too, and PySpark in the version that the archive on `path` has."""
    archive = next((entry for entry in path if entry.endswith("pyspark.zip") and is_sparks_archive(entry)), None)
    spec = PathFinder.find_spec("pyspark", installed)
    if archive is None or spec is None or spec.origin is None or PathFinder.find_spec("py4j", installed) is None:
        return False
    try:
        wanted = zipimport.zipimporter(archive).get_data(str(Path("pyspark", "version.py")))
        return Path(spec.origin).with_name("version.py").read_bytes() == wanted
    except (OSError, zipimport.ZipImportError):
        return False
