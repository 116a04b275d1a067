"""A run's results as one HTML page that needs nothing beside it: tables with verdicts, plots, how it was measured."""

from __future__ import annotations

import pathlib
import re
from typing import Any

from bench import plots, report, verdict
from bench.verdict import Comparison

TEMPLATE = pathlib.Path(__file__).with_name("page.html")
#: Which measures are drawn as bars, by part of the report.
_DRAWN: dict[str, tuple[verdict.Measure, ...]] = {
    "Raw frames: produce": (verdict.MEGABYTES, verdict.RATE, verdict.CPU_REQUEST, verdict.CPU_GB),
    "Raw frames: fetch": (verdict.MEGABYTES, verdict.RATE, verdict.CPU_REQUEST, verdict.CPU_GB),
    "Raw frames: small requests and latency": (verdict.RATE, verdict.CPU_REQUEST),
    verdict.SWEEPS: (verdict.RATE,),
    "librdkafka": (verdict.RECORDS, verdict.CPU_GB),
    "Java clients": (verdict.RECORDS, verdict.CPU_GB),
    "Operations": (verdict.SECONDS, verdict.MEMORY),
}


def render(document: dict[str, Any]) -> str:
    """The page's text."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    sides = [report.NAMES.get(side, side) for side in document["sides"]]
    counts = report.counts(document)
    behind = [
        (name, one)
        for name in document["medians"]
        for one in report.comparisons(document, name)
        if one.word == "behind"
    ]
    return environment.from_string(TEMPLATE.read_text()).render(
        title=" and ".join(sides) + (" side by side" if len(sides) > 1 else ""),
        preamble=report.preamble(document)[0],
        document=document | {"stopped": document.get("stopped", "")},
        counts=counts,
        total=sum(counts.values()),
        equal_percent=round(verdict.EQUAL_SHARE * 100),
        other=sides[-1],
        behind=behind,
        groups=[_group(document, title, names) for title, names in verdict.groups(document).items()],
        memory=plots.memory(document),
        how=[re.sub(r"^- |`", "", line) for line in report.how(document)],
        show=format,
    )


def _group(document: dict[str, Any], title: str, names: list[str]) -> dict[str, Any]:
    drawn = [
        {"title": measure.title, "svg": svg}
        for measure in _DRAWN.get(title, ())
        if (svg := plots.bars(document, names, measure))
    ]
    if title != verdict.SWEEPS and (svg := plots.percentiles(document, names)):
        drawn.append({"title": "Latency by percentile", "svg": svg})
    both = [plots.sweep(document, axis) for axis in ("partitions", "connections")] if title == verdict.SWEEPS else []
    kinds = [kind for kind in verdict.MEASURES if any(document["cells"][name]["kind"] == kind for name in names)]
    return {
        "title": title,
        "tables": [
            _table(document, [name for name in names if document["cells"][name]["kind"] == kind]) for kind in kinds
        ],
        "plots": drawn,
        "pair": [svg for svg in both if svg],
    }


def _table(document: dict[str, Any], names: list[str]) -> dict[str, Any]:
    results = [result for name in names for result in document["medians"].get(name, {}).values()]
    measures = verdict.measures_of(document["cells"][names[0]]["kind"], results)
    return {"measures": measures, "rows": [row for name in names for row in _rows(document, name, measures)]}


def _rows(document: dict[str, Any], name: str, measures: list[verdict.Measure]) -> list[dict[str, Any]]:
    found = document["medians"].get(name, {})
    missing = document.get("not_served", {}).get(name, {})
    rows: list[dict[str, Any]] = []
    for side in document["sides"]:
        result = found.get(side, {})
        if not result and side not in missing:
            continue
        cells = [(format(result[one.key], one.form) if one.key in result else "", "") for one in measures]
        note = missing[side] if side in missing else report.others(result)
        label = report.NAMES.get(side, side)
        first = not rows
        rows.append({"style": "first" if first else "", "title": document["cells"][name]["title"] if first else "",
                     "side": label, "cells": cells, "note": note})  # fmt: skip
    judged = {one.measure.key: one for one in report.comparisons(document, name)}
    if judged:
        cells = [_verdict(judged[one.key]) if one.key in judged else ("", "") for one in measures]
        rows.append({"style": "factor", "title": "", "side": "", "cells": cells, "note": ""})
    return rows


def _verdict(one: Comparison) -> tuple[str, str]:
    if one.word == "equal":
        return "equal", "equal"
    return f"{one.word} {one.factor:.2f}x" if one.word == "behind" else f"{one.factor:.1f}x", one.word
