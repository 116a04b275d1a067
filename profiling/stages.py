"""A request's CPU time by stage: receive, decode, gates, validate, append, index, respond, send, loop.

perf says where the processor was: which system call, which extension, the interpreter.  It does not know Python
functions (before Python 3.12), so its samples in the interpreter are shared out over the stages as py-spy saw the
Python functions, by the file that each is in.  Without py-spy they stay one line, `python`.

For a fetch, `append` is finding and reading (`UnifiedLog.read`), and `gates` are the session and the partition.
"""

from __future__ import annotations

from collections import Counter

from profiling.stacks import Stacks

ORDER = ("receive", "decode", "gates", "validate", "append", "index", "respond", "send", "loop", "python", "other")

_SYSTEM_CALLS = {
    "receive": ("read", "recvfrom", "recvmsg", "readv"),
    "append": ("pwrite64", "pwritev", "pwritev2", "fallocate", "pread64", "preadv", "preadv2"),
    "send": ("sendto", "sendmsg", "write", "writev", "sendfile64", "sendfile"),
    "loop": ("epoll_wait", "epoll_pwait", "epoll_ctl", "futex", "clock_gettime", "timerfd_settime"),
    "other": ("fsync", "fdatasync", "openat", "close", "unlink", "newfstatat"),
}
_BY_CALL = {call: stage for stage, calls in _SYSTEM_CALLS.items() for call in calls}
#: Extensions by what they do in a request; those not named count by their callers.
_EXTENSIONS = {
    "receive": ("receiver", "receive_buffer", "connection"),
    # Of a plain request decoding, gates and the answer are one.
    "decode": ("decoder", "structs", "codec", "direct", "fast_produce", "fast_fetch", "targets_read"),
    "validate": ("record_batch", "batch_info", "crc32c", "record_stream", "record_codec", "varint"),
    "append": (
        "fast_append",
        "append_group",
        "partition_read",
        "producer_entry",
        "producer_table",
        "file_space",
        "batch_seek",
    ),
    "index": ("index",),
    "respond": ("encoder", "fetch_answer"),
    "send": ("sender", "responder", "file_region", "page_cache", "send_threads"),
    "loop": ("counters", "route", "turn", "busy_poll"),
}
_BY_EXTENSION = {name: stage for stage, names in _EXTENSIONS.items() for name in names}
#: Python sources, the first match counts.
_SOURCES: tuple[tuple[str, str], ...] = (
    ("kbroker/storage/log/log_validator", "validate"),
    ("kbroker/records/", "validate"),
    ("kbroker/storage/log/indexes", "index"),
    ("kbroker/storage/", "append"),
    ("kbroker/replication/fetch_session", "gates"),
    ("kbroker/replication/", "append"),
    ("kbroker/handlers/cluster/endpoints", "send"),
    ("kbroker/handlers/dispatch", "loop"),
    ("kbroker/handlers/", "gates"),
    ("kbroker/config/", "gates"),
    ("kbroker/protocol/", "decode"),
    ("kbroker/schemas/", "decode"),
    ("kbroker/network/", "loop"),
    ("kbroker/metrics/", "loop"),
    ("kbroker/", "other"),
)


def of_sample(stack: tuple[str, ...]) -> str:
    """The stage of one perf stack, root first: the innermost frame that tells."""
    for frame in reversed(stack):
        if frame.endswith("_[k]"):
            name = frame[:-4].removeprefix("__x64_sys_").removeprefix("__se_sys_").removeprefix("ksys_")
            if frame.startswith(("__x64_sys_", "__se_sys_")) and name in _BY_CALL:
                return _BY_CALL[name]
            continue
        if frame.startswith("cython:"):
            stage = _BY_EXTENSION.get(frame[7:].partition(".")[0])
            if stage is not None:
                return stage
            continue
        if frame.startswith("uvloop:"):
            return "loop"
        if "_PyEval_" in frame or frame.startswith("libpython:"):
            return "python"
    return "other"


def of_python(stack: tuple[str, ...]) -> str | None:
    """The stage of one py-spy stack that perf would find in the interpreter; None for others and for those that
    wait."""
    for frame in reversed(stack):
        if "(libc.so" in frame or "[vdso]" in frame or "(libuv" in frame or ".pyx:" in frame:
            return None
        if ".py:" in frame and "kbroker/" in frame:
            return next(stage for source, stage in _SOURCES if source in frame)
        if ".py:" in frame:
            return "other"
    return None


def shares(perf: Stacks, python: Stacks | None = None) -> dict[str, float]:
    """The share of the CPU time by stage, 0 to 1, in ORDER; stages without any are left out."""
    found: Counter[str] = Counter()
    for stack, count in perf.items():
        found[of_sample(stack)] += count
    total = sum(found.values()) or 1
    seen: Counter[str] = Counter()
    for stack, count in (python or {}).items():
        stage = of_python(stack)
        if stage is not None:
            seen[stage] += count
    result = {stage: found[stage] / total for stage in ORDER}
    if seen:
        interpreter = result.pop("python")
        for stage, count in seen.items():
            result[stage] += interpreter * count / sum(seen.values())
    return {stage: result[stage] for stage in ORDER if result.get(stage)}


def interpreter_share(perf: Stacks) -> float:
    """How much of the CPU time perf found in the interpreter."""
    total = sum(perf.values()) or 1
    return sum(count for stack, count in perf.items() if of_sample(stack) == "python") / total


def table(found: dict[str, float], cpu_us_per_request: float) -> str:
    """Markdown: µs per request by stage."""
    lines = ["| stage | us/request | % |", "|---|---:|---:|"]
    lines += [f"| {stage} | {share * cpu_us_per_request:.2f} | {share * 100:.1f} |" for stage, share in found.items()]
    lines.append(f"| all | {cpu_us_per_request:.2f} | 100.0 |")
    return "\n".join(lines) + "\n"
