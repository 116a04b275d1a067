"""One page of metrics made of several: each sample of a worker has the label `worker`.

A sum would be wrong for what is no counter, and Prometheus makes it where it is right: `sum without (worker) (...)`.
The texts are those of the client library: the comments of a family, then its samples.
"""

from __future__ import annotations

from collections.abc import Mapping

END = "# EOF"


def merged(pages: Mapping[int, str]) -> str:
    """The text of all workers' pages, by number; families in the order in which they first come."""
    comments: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    is_open_metrics = False
    for number, page in pages.items():
        family = ""
        for line in page.splitlines():
            if line == END:
                is_open_metrics = True
            elif line.startswith("# "):
                family = line.split(" ", 3)[2]
                known = comments.setdefault(family, [])
                if line not in known:
                    known.append(line)
            elif line:
                samples.setdefault(family, []).append(labelled(line, number))
    lines = [line for family, known in comments.items() for line in (*known, *samples.get(family, ()))]
    lines += samples.get("", ())
    if is_open_metrics:
        lines.append(END)
    return "".join(f"{line}\n" for line in lines)


def labelled(sample: str, number: int) -> str:
    """A sample with the label of a worker, before its others."""
    brace, space = sample.find("{"), sample.find(" ")
    label = f'worker="{number}"'
    if 0 <= brace < space:
        return f"{sample[: brace + 1]}{label},{sample[brace + 1 :]}"
    return f"{sample[:space]}{{{label}}}{sample[space:]}"
