"""A run's results as a Markdown table: one row per cell and side, with the ratio where both were measured."""

from __future__ import annotations

from typing import Any

_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("requests/s", "requests_per_s", ",.0f"),
    ("MB/s", "mb_per_s", ",.0f"),
    ("p50 us", "p50_us", ",.0f"),
    ("p99 us", "p99_us", ",.0f"),
    ("CPU us/request", "cpu_us_per_request", ",.1f"),
    ("CPU-s/GB", "cpu_s_per_gb", ".2f"),
)
_OTHERS = ("ready_s", "resident_mb", "idle_cpu_percent", "bytes_per_connection", "note")


def table(document: dict[str, Any]) -> str:
    """The whole report."""
    machine, versions = document["machine"], document["versions"]
    lines = [
        f"Measured {document['time']} on {machine['cpus']} x {machine['cpu']}, {machine['memory_gb']} GB, "
        f"Linux {machine['kernel']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f"; medians of {document['arguments']['rounds']} rounds, "
        f"TCP congestion control {document['arguments']['congestion'] or 'the system default'}.",
        "",
        "| cell | side | " + " | ".join(title for title, _, _ in _COLUMNS) + " | other |",
        "|---|---|" + "---:|" * len(_COLUMNS) + "---|",
    ]
    for name, sides in document["medians"].items():
        title = document["cells"][name]["title"]
        for side, result in sides.items():
            lines.append(_row(title, side, result, storm=document["cells"][name]["kind"] == "storm"))
    if document["faults"]:
        lines += ["", "Faults:", *(f"- {fault}" for fault in document["faults"])]
    return "\n".join(lines) + "\n"


def _row(title: str, side: str, result: dict[str, Any], *, storm: bool) -> str:
    figures = ["" if storm or key not in result else format(result[key], form) for _, key, form in _COLUMNS]
    others = [f"{key} {result[key]}" for key in _OTHERS if key in result]
    if storm:
        others.insert(0, f"all answered in {result['seconds']:.2f} s, {result['errors']} failed")
    return f"| {title} | {side} | " + " | ".join(figures) + f" | {', '.join(others)} |"
