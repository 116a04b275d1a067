"""Soak groups: 50 consumers join, leave, stop and die at random for a time, and what they say of it is judged.

    python -m tests.scenarios.soak.run --seconds 300 --seed 7      (make soak SECONDS=300 SEED=7)

Each of the groups of `plan.py` has a topic that a producer writes to, and up to `--members` members in all.  A member
leaves in order (SIGTERM), dies (SIGKILL), hangs for a while (SIGSTOP), others join.  When the time is up, what is left
of the groups reads to the end.  Where a group with members gets no record for 20 s, its state and theirs are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.broker_process import BrokerProcess
from tests.scenarios.soak import history
from tests.scenarios.soak.history import Event
from tests.scenarios.soak.plan import (
    BROKER_SETTINGS,
    GROUPS,
    LOCK_MS,
    PARTITIONS,
    REBALANCE_MS,
    ROOT,
    SESSION_MS,
    MemberKind,
    SoakedGroup,
)

NO_PROGRESS_SECONDS = 20.0
DRAIN_SECONDS = 90.0
RECORDS_PER_TICK = 6
TICK_SECONDS = 0.1
# A member may die with its session at the beginning, and the next while it joins.
LONGEST_UNOWNED_SECONDS = (SESSION_MS + REBALANCE_MS) / 1000


@dataclass(slots=True)
class Member:
    """A member's process and what it has said so far."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    read: int = 0
    continues: float | None = None
    is_leaving: bool = False

    def lines(self) -> list[str]:
        """What is new; a line that is not complete is left for later."""
        with self.output.open("rb") as file:
            file.seek(self.read)
            new, newline, _ = file.read().rpartition(b"\n")
        self.read += len(new) + len(newline)
        return [line + "\n" for line in new.decode().split("\n")] if newline else []


@dataclass(slots=True)
class Soaked:
    """A group under way."""

    plan: SoakedGroup
    members: dict[str, Member] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    failures: int = 0
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    progress: float = field(default_factory=time.monotonic)
    started: int = 0

    @property
    def word(self) -> str:
        """What says that a record is done with."""
        return "accepted" if self.plan.is_share else "got"

    def collect(self) -> None:
        """Read what the members have said since."""
        for member in self.members.values():
            for line in member.lines():
                event = history.read_line(member.name, line)
                if event is None:
                    self.failures += 1
                    continue
                self.events.append(event)
                if event.word == self.word:
                    self.progress = time.monotonic()

    def alive(self) -> list[Member]:
        """Members whose process is there and was not asked to go."""
        return [each for each in self.members.values() if each.process.poll() is None and not each.is_leaving]

    def note(self, member: Member, word: str) -> None:
        """What was done to a member."""
        self.events.append(Event(time.monotonic(), member.name, word))


class Soak:
    """One run."""

    def __init__(self, broker: BrokerProcess, folder: Path, seed: int, members: int, groups: tuple[SoakedGroup, ...]):
        self.broker = broker
        self.folder = folder
        self.random = random.Random(seed)
        self.largest = max(2, members // len(groups))
        self.groups = [Soaked(group) for group in groups]
        self.producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "enable.idempotence": True})
        self.counts: dict[str, int] = {}

    # What happens

    def prepare(self) -> None:
        """The topics, and share groups that begin at the beginning."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for future in admin.create_topics([NewTopic(each.plan.name, PARTITIONS, 1) for each in self.groups]).values():
            future.result(30)
        for each in self.groups:
            if each.plan.is_share:
                entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
                resource = ConfigResource(ResourceType.GROUP, each.plan.name, incremental_configs=[entry])
                admin.incremental_alter_configs([resource])[resource].result(30)
            for _ in range(self.largest):
                self.join(each)

    def join(self, group: Soaked) -> None:
        """One member more."""
        kinds = group.plan.kinds
        kind: MemberKind = self.random.choices(kinds, [each.weight for each in kinds])[0]
        name = f"{group.plan.name}-{group.started:03}-{kind.name}"
        group.started += 1
        output = self.folder / f"{name}.out"
        with output.open("wb") as out, (self.folder / f"{name}.err").open("wb") as errors:
            process = subprocess.Popen(
                list(kind.command(self.broker.bootstrap, group.plan.name, group.plan.name)),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )
        group.members[name] = Member(name, process, output)
        self.count("join")

    def count(self, what: str) -> None:
        """For the report."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def disturb(self) -> None:
        """One thing at random, to one group."""
        group = self.random.choice(self.groups)
        alive = [member for member in group.alive() if member.continues is None]
        few = len(alive) <= self.largest // 2
        action = "join" if few else self.random.choice(["leave", "kill", "stop", "join"])
        if action == "join":
            if len(group.alive()) < self.largest:
                self.join(group)
            return
        member = self.random.choice(alive)
        self.count(action)
        if action == "leave":
            member.is_leaving = True
            member.process.send_signal(signal.SIGTERM)
        elif action == "kill":
            group.note(member, "killed")
            member.process.kill()
            member.process.wait()
        else:
            group.note(member, "stopped")
            member.process.send_signal(signal.SIGSTOP)
            member.continues = time.monotonic() + self.random.uniform(0.5, 2.0 * SESSION_MS / 1000)

    def go_on(self, *, all_of_them: bool = False) -> None:
        """Let members go on that were stopped for long enough."""
        for group in self.groups:
            for member in group.members.values():
                if member.continues is not None and (all_of_them or time.monotonic() >= member.continues):
                    member.continues = None
                    member.process.send_signal(signal.SIGCONT)
                    group.note(member, "continued")

    def produce(self) -> None:
        """A few records for each group."""
        for group in self.groups:
            for _ in range(RECORDS_PER_TICK):
                partition = self.random.randrange(PARTITIONS)
                self.producer.produce(group.plan.name, b"%d" % group.ends[partition], partition=partition)
                group.ends[partition] += 1
        self.producer.poll(0)

    def run(self, seconds: float) -> None:
        """Disturb the groups for so long, then let them read to the end.  AssertionError where one hangs."""
        start = time.monotonic()
        next_disturbance = start + 10.0
        while (now := time.monotonic()) < start + seconds:
            self.produce()
            self.go_on()
            if now >= next_disturbance:
                self.disturb()
                next_disturbance = now + self.random.expovariate(1.5)
            self.look()
            time.sleep(TICK_SECONDS)
        self.go_on(all_of_them=True)
        assert self.producer.flush(60) == 0, "the producer could not write everything"
        deadline = time.monotonic() + DRAIN_SECONDS
        while any(
            left := {
                group.plan.name: history.missing(group.events, group.ends, group.word) for group in self.groups
            }.values()
        ):
            assert time.monotonic() < deadline, f"not read to the end: {left}\n{self.states()}"
            self.look()
            time.sleep(0.5)

    def look(self) -> None:
        """Read what members said; a group that stands still is a failure."""
        for group in self.groups:
            group.collect()
            if time.monotonic() - group.progress < NO_PROGRESS_SECONDS:
                continue
            if not history.missing(group.events, group.ends, group.word):
                group.progress = time.monotonic()
                continue
            raise AssertionError(f"{group.plan.name} got nothing for {NO_PROGRESS_SECONDS:g} s\n{self.states(group)}")

    # What is said of it

    def states(self, *groups: Soaked) -> str:
        """What the broker and the members say of groups that stand still."""
        lines = []
        for group in groups or self.groups:
            tool = "share" if group.plan.is_share else "groups"
            command = [sys.executable, "-m", "kbroker.cli", tool, "describe", group.plan.name, "--json"]
            done = subprocess.run(
                [*command, "-b", self.broker.bootstrap],
                capture_output=True,
                text=True,
                timeout=60,
                cwd=ROOT,
                check=False,
            )
            lines += [f"== {group.plan.name}", done.stdout, done.stderr[-500:]]
            log = self.broker.log_path.read_text(errors="replace").splitlines()
            lines += [line for line in log if group.plan.name in line][-15:]
            for member in group.members.values():
                if member.process.poll() is None:
                    said = member.output.read_text(errors="replace").splitlines()
                    lines += [f"-- {member.name} pid {member.process.pid}", *said[-4:]]
        return "\n".join(lines)

    def verdict(self) -> list[dict[str, object]]:
        """What each group did, and what is wrong with it."""
        return [self._judged(group) for group in self.groups]

    def _judged(self, group: Soaked) -> dict[str, object]:
        group.collect()
        events = history.in_order(group.events)
        wrong = [
            f"missing {partition}: {offsets[:10]}"
            for partition, offsets in history.missing(events, group.ends, group.word).items()
        ]
        report: dict[str, object] = {
            "group": group.plan.name,
            "members": group.started,
            "records": sum(group.ends.values()),
            "deliveries": sum(counts.total() for counts in history.offsets_of(events, "got").values()),
            "failures": group.failures,
        }
        if group.plan.is_share:
            wrong += history.accepted_twice(events, LOCK_MS / 1000)
        else:
            wrong += history.went_back(events)
            unowned = history.longest_unowned(events, SESSION_MS / 1000, events[-1].time)
            report["longest_unowned_seconds"] = round(unowned.seconds, 2)
            report["with_other_failures_between"] = round(unowned.whole_seconds, 2)
            if unowned.seconds > LONGEST_UNOWNED_SECONDS:
                wrong.append(f"partition {unowned.partition} had no owner for {unowned.seconds:.1f} s")
        report["wrong"] = wrong
        return report

    def end(self) -> None:
        """Nothing is left that runs."""
        for group in self.groups:
            for member in group.members.values():
                if member.process.poll() is None:
                    member.process.kill()
                    member.process.wait()


@contextmanager
def soaked(folder: Path, seed: int, members: int, names: tuple[str, ...] = ()) -> Iterator[Soak]:
    """A broker and groups with their members; all of it ends."""
    broker = BrokerProcess(folder / "broker", BROKER_SETTINGS)
    broker.start()
    soak = Soak(broker, folder, seed, members, tuple(each for each in GROUPS if not names or each.name in names))
    try:
        soak.prepare()
        yield soak
    finally:
        soak.end()
        broker.stop()


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--groups", default="", help="some of them, with commas")
    parser.add_argument("--folder", type=Path, default=None, help="where all output stays")
    options = parser.parse_args()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    folder = options.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, output in {folder}", flush=True)
    names = tuple(name for name in options.groups.split(",") if name)
    with soaked(folder, seed, options.members, names) as soak:
        soak.run(options.seconds)
        verdict = soak.verdict()
    print(json.dumps({"seed": seed, "done": soak.counts, "groups": verdict}, indent=2))
    return 1 if any(each["wrong"] for each in verdict) else 0


if __name__ == "__main__":
    sys.exit(main())
