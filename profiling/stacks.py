"""Samples as folded stacks (`root;caller;leaf count`), read from perf or py-spy, and tables over them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

Stacks = Counter[tuple[str, ...]]

_FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \((.*)\)$")
_CYTHON = re.compile(r"__pyx_(?:f|pw|pf|tp|mdef)_(?:7kbroker_5_fast_)?\d*(.+)")


def readable(symbol: str, module: str) -> str:
    """A symbol as a person reads it: Cython's mangling undone, unknown code named by its module."""
    if symbol == "[unknown]":
        return f"[{module.rpartition('/')[2] or 'unknown'}]"
    match = _CYTHON.fullmatch(symbol)
    return f"cython:{match[1]}" if match else symbol


def from_perf_script(lines: Iterable[str]) -> Stacks:
    """Stacks from `perf script` with fields comm, ip, sym and dso: a header line, frames leaf first, a blank line."""
    stacks: Stacks = Counter()
    frames: list[str] = []
    for line in lines:
        match = _FRAME.match(line)
        if match:
            frames.append(readable(match[1], match[2]))
        elif frames:
            stacks[tuple(reversed(frames))] += 1
            frames = []
    if frames:
        stacks[tuple(reversed(frames))] += 1
    return stacks


def from_folded(lines: Iterable[str]) -> Stacks:
    """Stacks from the folded text that py-spy writes."""
    stacks: Stacks = Counter()
    for line in lines:
        stack, _, count = line.rstrip("\n").rpartition(" ")
        if stack and count.isdigit():
            stacks[tuple(stack.split(";"))] += int(count)
    return stacks


def hot_symbols(stacks: Stacks, limit: int = 40) -> list[tuple[str, float, float]]:
    """(symbol, share on top of the stack, share anywhere in it) in percent, by the first."""
    total = sum(stacks.values()) or 1
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for stack, count in stacks.items():
        own[stack[-1]] += count
        for symbol in set(stack):
            within[symbol] += count
    return [(symbol, count / total * 100, within[symbol] / total * 100) for symbol, count in own.most_common(limit)]


def table(stacks: Stacks, limit: int = 40, cpu_us_per_request: float = 0.0) -> str:
    """A Markdown table; with the CPU per request, shares are also given in microseconds."""
    costly = cpu_us_per_request > 0
    lines = [
        f"| self % |{' us/request |' if costly else ''} total % | symbol |",
        f"|---:|{'---:|' if costly else ''}---:|---|",
    ]
    for symbol, own, within in hot_symbols(stacks, limit):
        cost = f" {own / 100 * cpu_us_per_request:.2f} |" if costly else ""
        lines.append(f"| {own:.1f} |{cost} {within:.1f} | `{symbol}` |")
    return "\n".join(lines) + "\n"
