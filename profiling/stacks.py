"""Samples as folded stacks (`root;caller;leaf count`), read from perf or py-spy, and tables over them."""

from __future__ import annotations

import pathlib
import re
from collections import Counter
from collections.abc import Iterable

Stacks = Counter[tuple[str, ...]]

_FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \((.*)\)$")
_CYTHON = re.compile(r"__pyx_[a-z]+_7kbroker_5_fast_(\d.+)")
_SIZED = re.compile(r"(\d+)(.+)")
_FAST = pathlib.Path(__file__).resolve().parent.parent / "kbroker" / "_fast"
_PART = re.compile(r"_(\d+)(?=\D)")
_LIBRARIES = {"libpython": "libpython", "libc.so": "libc", "libcrypto": "libcrypto"}


def readable(symbol: str, module: str) -> str:
    """A symbol as a person reads it, with where it is from: `cython:decoder.decode_struct`, `uvloop:...`,
    `libpython:...`, `libc:...`, kernel symbols with `_[k]` behind."""
    if "kernel" in module or module == "[guest.kernel.kallsyms]":
        return f"{symbol}_[k]"
    file = module.rpartition("/")[2]
    name = "?" if symbol == "[unknown]" else symbol
    match = _CYTHON.fullmatch(symbol)
    if match:
        module, name = _split(match[1])
        while (_FAST / module).is_dir():
            module, name = _split(name.lstrip("_"))
        return f"cython:{module}.{_PART.sub('.', name).lstrip('._')}"
    if "/_fast/" in module:
        return f"cython:{file.partition('.')[0]}.{name}"
    if "/uvloop/" in module:
        return f"uvloop:{name}"
    for stem, library in _LIBRARIES.items():
        if file.startswith(stem):
            return f"{library}:{name}"
    return f"[{file or 'unknown'}]" if symbol == "[unknown]" else symbol


def _split(mangled: str) -> tuple[str, str]:
    """The first name of a mangled one, which has its length in front, and what follows."""
    match = _SIZED.match(mangled)
    if match is None:
        return "", mangled
    length = int(match[1])
    return match[2][:length], match[2][length:]


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
