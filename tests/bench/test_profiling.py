"""The profiler's own logic: which stage a sample belongs to, and what the counting tools print."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

counting = pytest.importorskip("profiling.counting", reason="the profiler is not part of this tree")
stacks = pytest.importorskip("profiling.stacks")
stages = pytest.importorskip("profiling.stages")
flame_graph = pytest.importorskip("profiling.flame_graph")

FAST = "/x/kbroker/_fast/{}.cpython-311-x86_64-linux-gnu.so"


@pytest.mark.parametrize(
    ("symbol", "module", "name"),
    [
        ("__pyx_f_7kbroker_5_fast_7decoder_decode_struct", FAST.format("decoder"), "cython:decoder.decode_struct"),
        ("__pyx_pw_7kbroker_5_fast_6sender_6Sender_3flush", FAST.format("sender"), "cython:sender.Sender.flush"),
        ("__Pyx_PyObject_Call", FAST.format("connection"), "cython:connection.__Pyx_PyObject_Call"),
        ("_PyEval_EvalFrameDefault", "/usr/lib/libpython3.11.so.1.0", "libpython:_PyEval_EvalFrameDefault"),
        ("tcp_sendmsg", "[kernel.kallsyms]", "tcp_sendmsg_[k]"),
        ("[unknown]", "/usr/lib/libfoo.so", "[libfoo.so]"),
    ],
)
def test_symbols_say_where_they_are_from(symbol: str, module: str, name: str) -> None:
    """A flame graph would show mangled names, and no stage could be told from them."""
    assert stacks.readable(symbol, module) == name


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (("libpython:_PyEval_EvalFrameDefault", "__x64_sys_pwrite64_[k]", "ext4_file_write_iter_[k]"), "append"),
        (("cython:sender.Sender.flush", "__x64_sys_sendto_[k]", "__x64_sys_futex_wake_[k]", "tcp_[k]"), "send"),
        (("uvloop:uv__io_poll", "__x64_sys_epoll_pwait_[k]", "schedule_[k]"), "loop"),
        (("libpython:_PyEval_EvalFrameDefault", "cython:decoder.decode", "libc:malloc"), "decode"),
        (("cython:connection.process", "libpython:_PyEval_EvalFrameDefault", "libpython:PyDict_GetItem"), "python"),
        (("asm_sysvec_apic_timer_interrupt_[k]",), "other"),
    ],
)
def test_a_sample_belongs_to_the_innermost_stage_that_it_tells(stack: tuple[str, ...], stage: str) -> None:
    """The budget by stage would blame the wrong part."""
    assert stages.of_sample(stack) == stage


def test_the_interpreters_part_is_shared_out_by_python_functions() -> None:
    """Python's cost, the larger half, would have no stage."""
    perf = Counter({("__x64_sys_read_[k]",): 50, ("libpython:_PyEval_EvalFrameDefault",): 50})
    python = Counter(
        {
            (
                "run (kbroker/broker.py:1)",
                "_judge (kbroker/handlers/records/produce.py:130)",
                "Py_DECREF (object.h:537)",
            ): 30,
            ("handle (kbroker/handlers/records/produce.py:1)", "append (kbroker/storage/log/unified_log.py:9)"): 10,
            ("run (kbroker/broker.py:1)", "epoll_pwait (libc.so.6)"): 900,
            ("Thread.run (threading.py:1)", "_worker (concurrent/futures/thread.py:81)", "0x7f (libc.so.6)"): 500,
        }
    )
    assert stages.shares(perf, python) == {"receive": 0.5, "gates": 0.375, "append": 0.125}
    assert stages.shares(perf) == {"receive": 0.5, "python": 0.5}
    assert "| gates | 3.75 | 37.5 |" in stages.table(stages.shares(perf, python), 10.0)


def test_what_the_machine_does_not_count_is_said() -> None:
    """A zero would be taken for no cache misses."""
    counts = counting.Counts(tool="perf stat")
    text = (
        "120;;syscalls:sys_enter_read;1;100\n0;;syscalls:sys_enter_fsync;1;100\n<not supported>;;cache-misses;0;100\n"
    )
    counting.read_perf_stat(text + "700;;kb1:objects;1;100\n", {"kb1:objects": "Python objects allocated"}, counts)
    table = counting.table(counts, 100, counting.Counts(others={"Python objects allocated": 700}), 10)
    assert "| read | 1.200 |" in table and "fsync" not in table
    assert "| cache-misses | not supported on this machine |" in table
    assert "| Python objects allocated | 70.000 |" in table


def test_straces_table_is_read() -> None:
    """Machines without perf would show no system calls."""
    text = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.54    0.000440           4       100           sendto
 38.46    0.000275           2       120        20 read
------ ----------- ----------- --------- --------- ----------------
100.00    0.000715           3       220        20 total
"""
    counts = counting.Counts()
    counting.read_strace(text, counts)
    assert counts.system_calls == {"sendto": 100, "read": 120}


def test_probes_lie_in_the_files_that_a_broker_loads() -> None:
    """Allocations would be counted in another library than the broker uses, as none."""
    for symbol, library in (("PyObject_Malloc", "python"), ("memcpy", "libc")):
        path, _, offset = counting._file_offset(symbol).rpartition(":")
        assert library in path
        assert 0 < int(offset, 16) < os.stat(path).st_size


def test_system_calls_of_a_process_are_counted() -> None:
    """The table per request would be made up."""
    code = "import os, sys\nfor line in sys.stdin:\n  for _ in range(1000): os.getppid()\n  print(1, flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None

        def work() -> None:
            process.stdin.write(b"go\n")
            process.stdin.flush()
            process.stdout.readline()

        counts = counting.Counts()
        try:
            work()
            with counting.counted(process.pid, counts):
                work()
        except (OSError, RuntimeError) as error:
            pytest.skip(f"this machine does not let us count: {error}")
        finally:
            process.send_signal(signal.SIGTERM)
    if not counts.system_calls:
        pytest.skip(f"nothing counts here: {counts.missing}")
    assert counts.system_calls["getppid"] == 1000


def test_a_flame_graph_shows_names_and_shares() -> None:
    """The picture would be empty."""
    svg = flame_graph.render(Counter({("a", "cython:decoder.run"): 3, ("a", "tcp_sendmsg_[k]"): 1}), "title")
    assert "cython:decoder.run: 3 samples, 75.00%" in svg
    assert svg.startswith("<svg") and svg.rstrip().endswith("</svg>")
