"""Frames of real clients and brokers, from files."""

from __future__ import annotations

import gzip
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from kbroker.schemas import family_of, message

VECTORS = pathlib.Path(__file__).parent / "vectors"
RELEASES = ("4.3.1", "3.9.1")


def load(release: str) -> Iterator[tuple[Any, int, bytes, dict[str, Any]]]:
    with gzip.open(VECTORS / f"kafka-{release}.tsv.gz", "rt") as lines:
        for line in lines:
            name, version, encoded, described = line.rstrip("\n").split("\t")
            try:
                family_of(name)
            except KeyError:
                name = name.removesuffix("Data")
            yield message(name), int(version), bytes.fromhex(encoded), json.loads(described)
