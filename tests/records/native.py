"""With and without the C libraries of the codecs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kbroker._fast.records import native_libraries
from kbroker.records.codec_libraries import native_codecs_loaded


@contextmanager
def without_native_codecs() -> Iterator[None]:
    """Everything goes the way through Python meanwhile."""
    native_libraries.forget()
    try:
        yield
    finally:
        native_codecs_loaded.cache_clear()
        native_codecs_loaded()
