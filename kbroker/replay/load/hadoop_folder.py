"""A folder on one of Spark's file systems (HDFS, S3A, GCS, ABFS …), by the Hadoop classes and settings of the session.

Paths are relative to the folder, with `/`.  The driver alone has them: an executor's Python reaches Spark's file
systems only through DataFrames.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from kbroker.replay.load.errors import LoadError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Java: TypeAlias = Any
"""An object of the JVM, whose methods are found as they are called."""

# S3A writes the object with If-None-Match by this; other file systems do not know it, and create exclusively anyway.
_CONDITIONAL = "fs.option.create.conditional.overwrite"
_THERE_ALREADY = ("FileAlreadyExistsException", "AlreadyBeingCreatedException", "RemoteFileChangedException", "412")


def is_remote(text: str) -> bool:
    """Whether it names a place on one of Spark's file systems rather than a local path."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme != "file"


class _GoneError(LoadError):
    """Something that was listed is not there any more."""


class HadoopFolder:
    """See the module's text.  Each method raises LoadError for what the file system refuses."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        """LoadError where the session has no JVM of its own, or does not know the file system."""
        jvm: Java = getattr(spark, "_jvm", None)
        if jvm is None:
            raise LoadError(f"{uri}: this takes a session with a JVM of its own, which Spark Connect has not")
        self._jvm = jvm
        self._conf: Java = spark._jsc.hadoopConfiguration()
        with _refused(uri):
            path = jvm.org.apache.hadoop.fs.Path(uri.rstrip("/"))
            self._files: Java = path.getFileSystem(self._conf)
            self.uri = str(self._files.makeQualified(path).toString())

    def at(self, path: str) -> str:
        """The whole URI of something in the folder."""
        return f"{self.uri}/{path}" if path else self.uri

    def names(self) -> list[str]:
        """What is directly in the folder; nothing where there is no folder."""
        with _refused(self.uri):
            path = self._path("")
            if not self._files.exists(path):
                return []
            return [str(each.getPath().getName()) for each in self._files.listStatus(path)]

    def files(self) -> dict[str, int]:
        """Sizes in bytes of all files at any depth."""
        return self.files_in("")

    def files_in(self, folder: str) -> dict[str, int]:
        """The same of a folder in this one, with its name in front; the name alone where that is a file."""
        with _refused(self.at(folder)):
            path = self._path(folder)
            if not self._files.exists(path):
                return {}
            about = self._files.getFileStatus(path)
            if not about.isDirectory():
                return {folder: int(about.getLen())}
            found, sizes = self._files.listFiles(path, True), {}
            while found.hasNext():
                each = found.next()
                sizes[str(each.getPath().toString()).removeprefix(f"{self.uri}/")] = int(each.getLen())
            return sizes

    def read(self, path: str) -> str:
        """A file's text.  FileNotFoundError."""
        try:
            with _refused(self.at(path)):
                stream = self._files.open(self._path(path))
                try:
                    return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
                finally:
                    stream.close()
        except _GoneError as error:
            raise FileNotFoundError(str(error)) from None

    def create(self, path: str, text: str) -> bool:
        """A new file.  False where there is one of that name."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        with _refused(self.at(path)):
            try:
                builder = self._files.createFile(self._path(path)).recursive().overwrite(False)
                stream = builder.opt(_CONDITIONAL, "true").build()
                stream.write(bytearray(text.encode()))
                stream.close()
            except Py4JJavaError as error:
                if any(word in str(error.java_exception) for word in _THERE_ALREADY):
                    return False
                raise
        return True

    def rename(self, path: str, to: str) -> None:
        """Gives a file another name, at which there is nothing yet."""
        with _refused(self.at(path)):
            target = self._path(to)
            self._files.mkdirs(target.getParent())
            if not self._files.rename(self._path(path), target):
                raise LoadError(f"{self.at(path)} could not be renamed to {self.at(to)}")

    def delete(self, path: str) -> None:
        """A file, or a folder with all that is in it; nothing where there is none."""
        with _refused(self.at(path)):
            self._files.delete(self._path(path), True)

    def parquet(self, path: str) -> tuple[list[str], int]:
        """Columns and number of rows of a Parquet file, from its end."""
        with _refused(self.at(path)):
            hadoop = self._jvm.org.apache.parquet.hadoop
            source = hadoop.util.HadoopInputFile.fromPath(self._path(path), self._conf)
            reader = hadoop.ParquetFileReader.open(source)
            try:
                schema = reader.getFooter().getFileMetaData().getSchema()
                return [str(each.getName()) for each in schema.getFields()], int(reader.getRecordCount())
            finally:
                reader.close()

    def encoded(self, path: str) -> str:
        """The URI as Spark's `_metadata.file_path` has it."""
        return str(self._path(path).toUri().toString())

    def _path(self, path: str) -> Java:
        return self._jvm.org.apache.hadoop.fs.Path(self.at(path))


@contextmanager
def _refused(where: str) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        text = str(error.java_exception)
        first = text.splitlines()[0]
        if "FileNotFoundException" in first:
            raise _GoneError(f"{where}: {first}") from None
        if "No FileSystem for scheme" in text or "ClassNotFoundException" in text:
            raise LoadError(
                f"{where}: Spark does not have this file system: name its connector with --packages, as "
                "org.apache.hadoop:hadoop-aws:<Spark's version of Hadoop> for s3a"
            ) from None
        raise LoadError(f"{where}: {first}") from None
