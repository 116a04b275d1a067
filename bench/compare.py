"""Two result files beside each other: what a change did, side by side and cell by cell.

Each factor says how many times better the second file is.  Differences within EQUAL_SHARE or within what the rounds
of either file differ among themselves are not called better or worse.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import zlib
from typing import Any

from bench import verdict
from bench.report import NAMES
from bench.verdict import Comparison, Measure


def load(path: pathlib.Path) -> dict[str, Any]:
    """A results.json, or that of a result folder, compressed (.gz) or not.  ValueError for anything else."""
    file = path
    if path.is_dir():
        packed = path / "results.json.gz"
        file = packed if packed.exists() else path / "results.json"
    try:
        data = file.read_bytes()
        document: dict[str, Any] = json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(f"{file} can't be read: {error}") from None
    if not isinstance(document, dict) or not {"medians", "cells", "rounds"} <= document.keys():
        raise ValueError(f"{file} holds no results of this benchmark")
    return document


def table(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The comparison as Markdown."""
    lines = ["| cell | side | measure | before | after | |", "|---|---|---|---:|---:|---|"]
    worse = better = 0
    for name, sides in after["medians"].items():
        for side, result in sides.items():
            old = before["medians"].get(name, {}).get(side)
            if old is None:
                continue
            for one in verdict.compare(after["cells"][name]["kind"], result, old):
                word = judge(one, spread(before, name, side, one.measure), spread(after, name, side, one.measure))
                worse, better = worse + (word == "worse"), better + (word == "better")
                form = one.measure.form
                shown = {"better": f"{one.factor:.2f}x better", "worse": f"**worse**, {one.factor:.2f}x", "": "same"}[
                    word
                ]
                label = NAMES.get(side, side)
                title = after["cells"][name]["title"]
                lines.append(
                    f"| {title} | {label} | {one.measure.title} | {one.theirs:{form}} | {one.ours:{form}} | {shown} |"
                )
    head = [f"{better} measures better, {worse} worse.", *differences(before, after), *_missing(before, after)]
    return "\n".join([*(line + "\n" for line in head), *lines]) + "\n"


def judge(one: Comparison, before: tuple[float, float], after: tuple[float, float]) -> str:
    """better, worse, or empty when the rounds overlap or the figures are about equal."""
    if one.word == "equal" or (before[0] <= after[1] and after[0] <= before[1]):
        return ""
    return "better" if one.word == "ahead" else "worse"


def spread(document: dict[str, Any], name: str, side: str, measure: Measure) -> tuple[float, float]:
    """The lowest and highest round."""
    values = [float(one[measure.key]) for one in document["rounds"][name][side] if measure.key in one]
    return min(values), max(values)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What else differs between the runs, so that it is not taken for the change's doing."""
    found = []
    for part in ("machine", "versions", "settings"):
        old, new = before.get(part, {}), after.get(part, {})
        for key in sorted(old.keys() | new.keys()):
            if key not in ("load", "dirty_limit_gb") and old.get(key) != new.get(key):
                found.append(f"- {part}, {key}: {old.get(key, 'not there')} before, {new.get(key, 'not there')} after")
    for key in ("rounds", "seconds", "congestion", "scale"):
        old, new = before.get("arguments", {}).get(key), after.get("arguments", {}).get(key)
        if old != new:
            found.append(f"- {key}: {old} before, {new} after")
    return ["The runs differ otherwise too:", *found] if found else []


def _missing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    only = sorted(before["medians"].keys() ^ after["medians"].keys())
    return ["Only in one of them: " + ", ".join(only) + "."] if only else []
