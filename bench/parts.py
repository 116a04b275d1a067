"""`make bench`: each compiled module and each storage operation, and what changed since the last commit.

    python bench/parts.py [--quick] [pytest arguments ...]
    python bench/parts.py --compare-only

Runs `pytest bench --benchmark-only`, stores the result in bench/results/parts/ with the commit that it belongs to, and
prints each benchmark beside the newest stored result of another commit (of this one's parents where there is one), and
the fast code beside its slow reference where the benchmarks have one.  Less than NOISE apart counts as equal.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import time
from typing import Any

from bench import git

ROOT = pathlib.Path(__file__).resolve().parent.parent
STORE = ROOT / "bench" / "results" / "parts"
NOISE = 0.10

#: Extensions that no benchmark calls by name, and the benchmark that spends its time in them.
MEASURED_WITHIN = {
    "answer_memo": "bench/test_network.py: test_recalled_answer",
    "answer_queue": "bench/test_network.py",
    "answer_timer": "bench/test_network.py",  # Each answer that is queued.
    "batch_builder": "bench/test_records.py",  # Each batch that a benchmark builds.
    "batch_info": "bench/test_small_parts.py: test_batch_info",
    "monotonic": "bench/test_network.py",  # Two looks at a clock for each request.
    "ready_queue": "bench/test_network.py",
    "kernel_tls": "bench/test_network.py: test_connection_under_tls",  # Where the kernel has it.
    "tls_library": "bench/test_network.py: test_connection_under_tls",
    "tls_socket": "bench/test_network.py: test_connection_under_tls",
    "tls_stream": "bench/test_network.py: test_connection_under_tls",
    "system_calls": "bench/test_fast_paths.py: test_append_fast",
    "build_facts": "bench/test_small_parts.py",  # Two constants.
    "busy_poll": "bench/test_network.py",
    "clean": "bench/test_cleaner.py: test_clean",
    "clean_files": "bench/test_cleaner.py: test_clean",
    "clean_output": "bench/test_cleaner.py: test_clean",
    "clean_passes": "bench/test_cleaner.py: test_clean",
    "clean_write": "bench/test_cleaner.py: test_clean",
    "append_steps": "bench/test_fast_paths.py: test_append_fast",
    "socket_calls": "bench/test_network.py",
    "append_group": "bench/test_fast_paths.py: test_append_ten_batches",
    "batch_rules": "bench/test_fast_paths.py: test_append_fast",
    "codec": "bench/test_codec.py",
    "column_buffer": "bench/test_small_parts.py: test_record_columns",
    "connection": "bench/test_network.py",
    "connection_interface": "bench/test_network.py",
    "connection_states": "bench/test_network.py",
    "pending": "bench/test_fast_paths.py: test_fetch_that_waits",
    "flush_batch": "bench/test_network.py",
    "frame_reader": "bench/test_network.py",
    "gate": "bench/test_network.py",
    "helper_pool": "bench/test_fast_paths.py: test_produce_together",
    "decoder": "bench/test_codec.py: test_decode_produce",
    "decoding": "bench/test_pieces.py: test_decode_one_piece",
    "delivery_client": "bench/test_replay_producer.py: test_play",
    "direct": "bench/test_fast_paths.py: test_produce_direct",
    "encoder": "bench/test_codec.py: test_answer_produce",
    "fast_append": "bench/test_fast_paths.py: test_append_fast",
    "fast_fetch": "bench/test_fast_paths.py: test_read_direct",
    "fetch_answer": "bench/test_fast_paths.py: test_read_direct",
    "fetch_target": "bench/test_fast_paths.py: test_fetch_of_a_session",
    "log_fields": "bench/test_fast_paths.py: test_append_fast",
    "partition_read": "bench/test_fast_paths.py: test_read_direct",
    "targets_read": "bench/test_fast_paths.py: test_fetch_of_a_session",
    "native_codecs": "bench/test_records.py: test_native_payloads",
    "native_libraries": "bench/test_records.py: test_native_payloads",
    "reactor": "bench/test_network.py",
    "request_context": "bench/test_network.py",
    "request_server": "bench/test_network.py",
    "segment_replay": "bench/test_storage.py: test_recovery",
    "socket_part": "bench/test_network.py",
    "send_threads": "bench/test_network.py: test_large_answers",
    "structs": "bench/test_small_parts.py: test_make_and_read_a_struct",
}

Medians = dict[str, float]


def run(arguments: list[str], *, quick: bool) -> pathlib.Path:
    """Run the benchmarks and return the file that holds their result."""
    STORE.mkdir(parents=True, exist_ok=True)
    target = STORE / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{commit()[:12]}.json"
    argv = [sys.executable, "-m", "pytest", "bench", "--benchmark-only", "-q", "-p", "no:cacheprovider"]
    argv += ["--benchmark-disable-gc", f"--benchmark-json={target}", "--timeout", "1800"]
    argv += ["--benchmark-columns=min,median,iqr,rounds", "--benchmark-sort=fullname"]
    if quick:
        argv += ["--benchmark-max-time=0.1", "--benchmark-min-rounds=3"]
    done = subprocess.run([*argv, *arguments], cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return target


def commit(revision: str = "HEAD") -> str:
    """The full id of a commit; `unknown` outside a repository."""
    return git.said("rev-parse", revision) or "unknown"


def history(most: int = 200) -> list[str]:
    """The ids of this commit's ancestors, newest first, without itself."""
    return git.said("rev-list", f"--max-count={most}", "HEAD").split()[1:]


def before(files: list[pathlib.Path], now: pathlib.Path, ancestors: list[str]) -> pathlib.Path | None:
    """The stored result to compare with: of the nearest ancestor that has one, else the newest of another commit."""
    present = commit_of(now)
    others = [(path, commit_of(path)) for path in sorted(files, reverse=True) if path != now]
    others = [(path, of) for path, of in others if of != present]
    for ancestor in ancestors:
        for path, of in others:
            if of == ancestor:
                return path
    return others[0][0] if others else None


def commit_of(path: pathlib.Path) -> str:
    """The commit that a stored result belongs to."""
    found: str = json.loads(path.read_text())["commit_info"]["id"]
    return found


def medians(path: pathlib.Path) -> Medians:
    """Seconds of the median round by benchmark."""
    document: dict[str, Any] = json.loads(path.read_text())
    return {one["fullname"]: float(one["stats"]["median"]) for one in document["benchmarks"]}


def shown(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:,.2f} {unit}"
    return f"{seconds * 1e9:,.0f} ns"


def comparison(old: Medians, new: Medians) -> str:
    """One line for each benchmark, those that changed marked."""
    lines = [f"{'benchmark':<78}{'before':>12}{'now':>12}  "]
    changed = {"faster": 0, "slower": 0}
    for name, now in new.items():
        then = old.get(name)
        word = "new" if then is None else judge(then, now)
        factor = "" if then is None or word == "" else f"{max(then, now) / min(then, now):.2f}x {word}"
        if word in changed:
            changed[word] += 1
        label = name.removeprefix("bench/")
        lines.append(f"{label[:77]:<78}{shown(then) if then else '':>12}{shown(now):>12}  {factor or word}")
    gone = sorted(old.keys() - new.keys())
    lines += [f"no longer there: {name}" for name in gone]
    lines.append(f"{changed['faster']} faster, {changed['slower']} slower by more than {NOISE:.0%}")
    return "\n".join(lines)


def judge(before_seconds: float, now_seconds: float) -> str:
    """faster, slower, or empty."""
    if now_seconds > before_seconds * (1 + NOISE):
        return "slower"
    return "faster" if now_seconds < before_seconds / (1 + NOISE) else ""


def references(new: Medians) -> str:
    """How many times faster the code is than its slow reference: `test_x` beside `test_x_reference`."""
    lines = []
    for name, slow in new.items():
        if "_reference" not in name:
            continue
        fast = new.get(name.replace("_reference", "", 1))
        if fast:
            label = name.replace("_reference", "", 1).removeprefix("bench/")
            lines.append(f"{label[:77]:<78}{shown(slow):>12}{shown(fast):>12}  {slow / fast:,.0f}x")
    head = f"{'beside its slow reference':<78}{'reference':>12}{'code':>12}"
    return "\n".join([head, *lines]) if lines else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that all run, not how fast")
    parser.add_argument("--compare-only", action="store_true", help="the newest stored result, no run")
    arguments, rest = parser.parse_known_args()
    stored = sorted(STORE.glob("*.json"))
    if arguments.compare_only and not stored:
        raise SystemExit(f"no stored result in {STORE}")
    now = stored[-1] if arguments.compare_only else run(rest, quick=arguments.quick)
    new = medians(now)
    print(f"\n{references(new)}\n")
    old = before(sorted(STORE.glob("*.json")), now, history())
    if old is None:
        print("nothing to compare with yet: the first stored result of another commit will be")
    else:
        print(f"{commit_of(old)[:12]} before, {commit_of(now)[:12]} now")
        print(comparison(medians(old), new))
    print(f"stored as {now.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
