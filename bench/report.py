"""A run's results as Markdown: for each cell all sides, and where kbroker is ahead, equal or behind."""

from __future__ import annotations

from typing import Any

from bench import verdict
from bench.verdict import Comparison

NAMES = {"kbroker": "kbroker", "kafka": "Kafka", "against": "the other"}


def table(document: dict[str, Any]) -> str:
    """The whole report."""
    lines = ["# kbroker side by side" if len(document["sides"]) > 1 else "# Benchmark", "", *preamble(document), ""]
    if document.get("stopped"):
        lines += [f"**Not complete: {document['stopped']}.**", ""]
    lines += [*_summary(document)]
    for title, names in verdict.groups(document).items():
        lines += ["", f"## {title}", ""]
        lines += _rows(document, names)
    if document["faults"]:
        lines += ["", "## Faults", "", *(f"- {fault}" for fault in document["faults"])]
    lines += ["", "## How it was measured", "", *how(document)]
    return "\n".join(lines) + "\n"


def preamble(document: dict[str, Any]) -> list[str]:
    machine, versions = document["machine"], document["versions"]
    named = ", ".join(f"{NAMES.get(name, name)} {version}" for name, version in versions.items())
    return [
        f"Measured {document['time']} on {machine['cpus']} x {machine['cpu']}, {machine['memory_gb']} GB, "
        f"Linux {machine['kernel']}, Python {machine.get('python', '?')}; {named or 'no broker was started'}; "
        f"medians of {document['arguments']['rounds']} rounds of {document['arguments']['seconds']} s.",
        "",
        f"    {document['command']}",
    ]


def how(document: dict[str, Any]) -> list[str]:
    """The settings, so that a second person can judge whether it was fair."""
    arguments, machine = document["arguments"], document["machine"]
    lines = [
        f"- TCP congestion control on both sides: {arguments['congestion'] or 'the system default'}; in "
        "cells named -system, the system default.",
        "- Memory was used once before, and again before cells of large batches; a first round of each cell warmed "
        "both sides and was thrown away; who went first alternated.",
        f"- The kernel makes writers wait from {machine.get('dirty_limit_gb', '?')} GB dirty on; a cell that wrote "
        "more says so.",
        "- CPU is the broker's user and system time, all threads.",
        "- Both sides were told: " + ", ".join(f"`{key}={value}`" for key, value in document["settings"].items()) + ".",
    ]
    lines += [f"- {NAMES.get(side, side)}: `{text}`" for side, text in document.get("commands", {}).items()]
    return lines


def pair(document: dict[str, Any]) -> tuple[str, str] | None:
    """The two sides that are compared, kbroker first."""
    sides = document["sides"]
    return (sides[0], sides[1]) if len(sides) == 2 else None


def comparisons(document: dict[str, Any], name: str) -> list[Comparison]:
    """What a cell's two sides say, empty when one is missing."""
    sides, found = pair(document), document["medians"].get(name, {})
    if sides is None or sides[0] not in found or sides[1] not in found:
        return []
    return verdict.compare(document["cells"][name]["kind"], found[sides[0]], found[sides[1]])


def counts(document: dict[str, Any]) -> dict[str, int]:
    """How many cells are ahead, equal, behind in their first measure."""
    words = {"ahead": 0, "equal": 0, "behind": 0}
    for name in document["medians"]:
        found = comparisons(document, name)
        if found:
            words[found[0].word] += 1
    return words


def _summary(document: dict[str, Any]) -> list[str]:
    words = counts(document)
    if not any(words.values()):
        return []
    lines = [f"By its first measure kbroker is ahead in {words['ahead']} cells, equal in {words['equal']}, "
             f"behind in {words['behind']}."]  # fmt: skip
    behind = [
        f"- behind: {document['cells'][name]['title']}: {one.measure.title} {one.ours:{one.measure.form}} "
        f"against {one.theirs:{one.measure.form}}"
        for name in document["medians"]
        for one in comparisons(document, name)
        if one.word == "behind"
    ]
    return [*lines, "", *behind] if behind else lines


def _rows(document: dict[str, Any], names: list[str]) -> list[str]:
    kinds = {document["cells"][name]["kind"] for name in names}
    lines: list[str] = []
    for kind in [kind for kind in verdict.MEASURES if kind in kinds]:
        here = [name for name in names if document["cells"][name]["kind"] == kind]
        results = [result for name in here for result in document["medians"].get(name, {}).values()]
        measures = verdict.measures_of(kind, results)
        lines += ["", "| cell | | " + " | ".join(measure.title for measure in measures) + " | notes |"]
        lines.append("|---|---|" + "---:|" * len(measures) + "---|")
        for name in here:
            lines += _cell_rows(document, name, measures)
    return lines[1:]


def _cell_rows(document: dict[str, Any], name: str, measures: list[verdict.Measure]) -> list[str]:
    sides = document["medians"].get(name, {})
    missing = document.get("not_served", {}).get(name, {})
    lines = []
    title = document["cells"][name]["title"]
    for side in document["sides"]:
        if side in missing:
            cells, note = [""] * len(measures), missing[side]
        elif side in sides:
            result = sides[side]
            cells = [format(result[one.key], one.form) if one.key in result else "" for one in measures]
            note = others(result)
        else:
            continue
        lines.append(f"| {title} | {NAMES.get(side, side)} | " + " | ".join(cells) + f" | {note} |")
        title = ""
    found = {one.measure.key: one for one in comparisons(document, name)}
    if found:
        cells = [_factor(found[one.key]) if one.key in found else "" for one in measures]
        lines.append("| | *kbroker* | " + " | ".join(cells) + " | |")
    return lines


def _factor(one: Comparison) -> str:
    return (
        "equal"
        if one.word == "equal"
        else f"**behind** {one.factor:.2f}x"
        if one.word == "behind"
        else f"{one.factor:.1f}x"
    )


_OTHERS = {"evicted_percent": "{} % out of the page cache before", "members_with_data": "{:.0f} members got records",
           "written_gb": "{} GB written", "left_gb": "{} GB left", "create_s": "created in {} s",
           "stop_s": "stopped in {} s",
           "partitions": "{:.0f} partitions", "segments": "{:.0f} segments", "batch_bytes": "{:,.0f} B each",
           "measured_s": "over {} s", "note": "{}"}  # fmt: skip


def others(result: dict[str, Any]) -> str:
    """What a result has beside its measures."""
    return "; ".join(form.format(result[key]) for key, form in _OTHERS.items() if key in result)
