"""Large ranges of files that threads send for the loop: whole, in order, and only where several clients read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
import uvloop

from kbroker._fast.base import monotonic
from kbroker._fast.net.send_threads import SendThreads
from kbroker.network.limits import beside_the_loop
from tests.broker_process import BrokerProcess
from tests.descriptors import open_names
from tests.handlers.altered import alter
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient
from tests.network.served_connection import BARE, ECHO, FILE, Harness, answer, frame, running, until
from tests.network.thread_names import threads_named
from tests.scenarios.session import Session

MB = 1 << 20
READERS = 6
SECONDS = 60
# The least that is lent.
LENT = 262_144
ROOT = Path(__file__).parents[2]
IN_A_CIRCLE = """
import gc
from types import SimpleNamespace
from kbroker._fast.net.send_threads import SendThreads
from tests.extensions.sleeping_pieces import lend_nothing

class Runner:
    def __init__(self, threads):
        self.threads = threads
    def __call__(self, threads):
        pass

gc.disable()
loop = SimpleNamespace(add_reader=lambda *_: None, remove_reader=lambda *_: None)
for is_later in (False, True):
    # Which of the two is cleared first depends on their age.
    runner = Runner(None) if is_later else None
    threads = SendThreads(loop, 2)
    threads.runner = runner = runner or Runner(threads)
    runner.threads = threads
    assert lend_nothing(threads, object()) and threads.running == 1
    del threads, runner
    gc.collect()
print("forgotten")
"""


def descriptors() -> int:
    """Open sockets and event descriptors."""
    return sum(name.startswith(("socket:", "anon_inode:[eventfd]")) for name in open_names())


def fill(harness: Harness, size: int) -> bytes:
    content = os.urandom(size)
    harness.file.write(content)
    harness.file.flush()
    return content


def wanted(number: int, position: int, size: int) -> bytes:
    return frame(FILE, number, struct.pack(">qq", position, size))


async def read_on(harness: Harness, content: bytes, seed: int, rounds: int) -> None:
    """Ask for ranges of many sizes, with a small answer behind each, and compare every byte."""
    reader, writer = await harness.connect()
    for n in range(rounds):
        position = (seed * 77_777 + n * 650_003) % (len(content) - 3 * MB)
        size = 200_000 + (n * 1_310_071 + seed) % (2 * MB)
        writer.write(wanted(n, position, size) + frame(ECHO, 1000 + n, b"after"))
        assert await answer(reader) == (n, b"<" + content[position : position + size] + b">")
        assert await answer(reader) == (1000 + n, b"after")
    writer.close()


async def until_lent(harness: Harness, count: int, work: Callable[[], Iterable[Awaitable[None]]]) -> None:
    """Let clients do this together, again and again, until so many ranges more were lent."""
    threads = harness.listener.endpoint.send_threads
    enough, deadline = threads.lent_count + count, time.monotonic() + SECONDS
    while threads.lent_count < enough:
        assert time.monotonic() < deadline
        await asyncio.gather(*work())


@pytest.mark.parametrize("buffer_bytes", [65_536, -1])
@pytest.mark.usefixtures("every_lender")
def test_what_several_clients_read_at_once_arrives_whole_and_in_order(buffer_bytes: int) -> None:
    """Consumers would get each other's bytes, holes, or the end of an answer before its middle."""

    async def main() -> None:
        async with running(send_threads=3, buffer_bytes=buffer_bytes) as harness:
            content = fill(harness, 16 * MB)
            threads = harness.listener.endpoint.send_threads
            await until_lent(harness, 50, lambda: (read_on(harness, content, seed, 10) for seed in range(READERS)))
            assert 1 <= threads.running <= 3 and threads.outstanding == 0

    uvloop.run(main())


@pytest.mark.usefixtures("every_lender")
def test_an_answer_that_ends_with_what_a_thread_sent_lets_the_next_request_in() -> None:
    """A consumer's second fetch would never be answered."""

    async def one(harness: Harness, content: bytes) -> None:
        reader, writer = await harness.connect()
        for n in range(20):
            writer.write(frame(BARE, n, struct.pack(">qq", n, MB)))
            assert await answer(reader) == (n, content[n : n + MB])
        writer.close()

    async def main() -> None:
        async with running(send_threads=1, buffer_bytes=-1) as harness:
            content = fill(harness, 2 * MB)
            await until_lent(harness, 20, lambda: (one(harness, content) for _ in range(READERS)))

    uvloop.run(main())


@pytest.mark.usefixtures("every_lender")
def test_one_client_that_reads_is_served_by_the_loop_alone() -> None:
    """Each answer would wait for another thread to wake up."""

    async def main() -> None:
        async with running(send_threads=2) as harness:
            await read_on(harness, fill(harness, 8 * MB), 1, 20)
            assert harness.listener.endpoint.send_threads.lent_count == 0
            assert harness.listener.endpoint.send_threads.running == 0

    uvloop.run(main())


def test_a_client_is_another_one_wherever_the_last_one_was_in_memory() -> None:
    """The place of a connection that is gone is the next one's: whether a thread sends would be up to the allocator,
    and the history of a seed another one in each process."""

    async def main() -> None:
        async with running(send_threads=1, buffer_bytes=-1) as harness:
            content = fill(harness, LENT)
            for n in range(READERS):
                reader, writer = await harness.connect()
                writer.write(frame(BARE, n, struct.pack(">qq", 0, LENT)))
                assert await answer(reader) == (n, content)
                writer.close()
                await until(lambda: not harness.listener.endpoint.connections)
            assert harness.listener.endpoint.send_threads.lent_count == READERS - 1

    # Nothing is long ago.
    monotonic.set_virtual(time.monotonic_ns(), 0, 0)
    try:
        uvloop.run(main())
    finally:
        monotonic.set_virtual(0)


def test_clients_that_leave_in_the_middle_leave_nothing_behind_and_harm_nobody() -> None:
    """A broker with impatient consumers would run out of descriptors, or send into somebody else's connection."""

    async def leave(harness: Harness, seed: int, rounds: int) -> None:
        for n in range(rounds):
            reader, writer = await harness.connect()
            writer.write(wanted(n, seed, 4 * MB))
            with contextlib.suppress(ConnectionError):
                await reader.readexactly(100_000 * (n % 3))
            writer.transport.abort()

    async def main() -> None:
        async with running(send_threads=2) as harness:
            content = fill(harness, 8 * MB)
            threads = harness.listener.endpoint.send_threads
            # And the one by which threads wake the loop, from the first that starts on.
            before = descriptors() + 1

            def stay_and_leave() -> list[Awaitable[None]]:
                stay = [read_on(harness, content, seed, 4) for seed in range(3)]
                return [*stay, *(leave(harness, seed, 10) for seed in range(4))]

            await until_lent(harness, 100, stay_and_leave)
            await until(lambda: not harness.listener.endpoint.connections and not threads.outstanding)
            # The clients of this test close theirs with a later turn of the loop.
            await until(lambda: descriptors() <= before)

    uvloop.run(main())


@pytest.mark.usefixtures("every_lender")
def test_a_file_that_was_cut_under_its_readers_ends_their_connections() -> None:
    """Clients would wait for the rest of an answer for ever."""

    async def one(harness: Harness, seed: int) -> None:
        reader, writer = await harness.connect()
        writer.write(wanted(seed, 0, 8 * MB))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await answer(reader)
        writer.close()

    async def main() -> None:
        async with running(send_threads=2) as harness:
            fill(harness, MB)
            await until_lent(harness, 10, lambda: (one(harness, seed) for seed in range(READERS)))
            await until(lambda: not harness.listener.endpoint.connections)
            assert set(harness.listener.closed) == {"lost"}

    uvloop.run(main())


def test_a_listener_that_is_closed_while_threads_send_ends_them() -> None:
    """The broker would hang at its stop, or its threads would touch what is gone."""

    async def main() -> None:
        before = descriptors()
        for _ in range(20):
            async with running(send_threads=2) as harness:
                fill(harness, 4 * MB)
                threads = harness.listener.endpoint.send_threads
                pairs = [await harness.connect() for _ in range(READERS)]
                deadline = time.monotonic() + SECONDS
                while not threads.outstanding:
                    assert time.monotonic() < deadline
                    for _, writer in pairs:
                        writer.write(wanted(1, 0, 4 * MB))
                    await asyncio.sleep(0)
            assert threads.running == threads.outstanding == 0
            for _, writer in pairs:
                writer.close()
        await until(lambda: descriptors() <= before)

    uvloop.run(main())


def test_no_thread_sends_where_none_is_allowed_and_a_change_counts_at_once() -> None:
    """`num.network.threads=1` would not leave a machine's other processors to others."""

    async def main() -> None:
        async with running() as harness:
            content = fill(harness, 8 * MB)
            threads = harness.listener.endpoint.send_threads
            await asyncio.gather(*(read_on(harness, content, seed, 10) for seed in range(READERS)))
            assert threads.lent_count == threads.running == 0
            threads.change(1)
            await until_lent(harness, 1, lambda: (read_on(harness, content, seed, 4) for seed in range(READERS)))
            assert threads.running == 1
            threads.change(0)
            lent = threads.lent_count
            await asyncio.gather(*(read_on(harness, content, seed, 10) for seed in range(READERS)))
            assert threads.lent_count == lent

    uvloop.run(main())


def test_a_process_that_may_open_no_more_files_sends_by_the_loop_alone() -> None:
    """A broker with as many connections as it may have would lose those that read."""

    async def main() -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        async with running(send_threads=2, buffer_bytes=4 * MB) as harness:
            content = fill(harness, 8 * MB)
            threads = harness.listener.endpoint.send_threads
            pairs = [await harness.connect() for _ in range(READERS)]
            await until(lambda: len(harness.listener.endpoint.connections) == READERS)
            # None of them blocks long enough to be watched: that takes a descriptor of its own, too.
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            try:
                for _ in range(20):
                    for number, (_, writer) in enumerate(pairs):
                        writer.write(wanted(number, 0, LENT))
                    for number, (reader, _) in enumerate(pairs):
                        assert await answer(reader) == (number, b"<" + content[:LENT] + b">")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert threads.lent_count == threads.running == 0
            for _ in range(200):
                for number, (_, writer) in enumerate(pairs):
                    writer.write(wanted(number, 0, LENT))
                for number, (reader, _) in enumerate(pairs):
                    assert await answer(reader) == (number, b"<" + content[:LENT] + b">")
            assert threads.lent_count > 0
            for _, writer in pairs:
                writer.close()

    uvloop.run(main())


def test_what_runs_the_jobs_in_the_place_of_threads_decides_when() -> None:
    """On virtual time a thread would send at any moment, and no history could be played again."""

    async def main() -> None:
        async with running(send_threads=2, buffer_bytes=4 * MB) as harness:
            threads = harness.listener.endpoint.send_threads
            threads.runner = lambda each: harness.loop.call_soon(each.do_next)
            content = fill(harness, 16 * MB)
            await until_lent(harness, 20, lambda: (read_on(harness, content, seed, 10) for seed in range(READERS)))
            assert threads.running > 0
            # Its own alone: those of tests before may end at any moment.
            assert threads.threads == threads.outstanding == 0
        threads.do_next()

    uvloop.run(main())


def test_what_a_client_that_has_left_would_have_been_sent_comes_to_nobody_else() -> None:
    """The next connection has the number of the socket that a thread was given, and would get another client's records
    amid its own answers."""

    async def main() -> None:
        async with running(send_threads=1, buffer_bytes=-1) as harness:
            threads, connections = harness.listener.endpoint.send_threads, harness.listener.endpoint.connections
            held: list[SendThreads] = []
            threads.runner = held.append
            content = fill(harness, LENT)
            first, first_writer = await harness.connect()
            first_writer.write(frame(BARE, 1, struct.pack(">qq", 0, LENT)))
            assert await answer(first) == (1, content)
            (known,) = connections
            _, leaving = await harness.connect()
            leaving.write(frame(BARE, 2, struct.pack(">qq", 0, LENT)))
            await until(lambda: held)
            (ended,) = set(connections) - {known}
            ended.close("as one that has been idle")
            leaving.transport.abort()
            await until(lambda: len(connections) == 1)
            others = [await harness.connect() for _ in range(READERS)]
            held.pop().do_next()
            threads.collect()
            async with asyncio.timeout(SECONDS):  # What is no answer may say that gigabytes follow.
                for number, (reader, writer) in enumerate([(first, first_writer), *others]):
                    writer.write(frame(ECHO, number, b"asked"))
                    assert await answer(reader) == (number, b"asked")
                    writer.close()
            assert threads.outstanding == 0

    # Nothing is long ago.
    monotonic.set_virtual(time.monotonic_ns(), 0, 0)
    try:
        uvloop.run(main())
    finally:
        monotonic.set_virtual(0)


def test_threads_that_others_did_the_work_of_are_forgotten_in_a_circle() -> None:
    """What had been cleared by the garbage collector was asked whether there were threads to end: there were none, and
    the process died."""
    ran = subprocess.run([sys.executable, "-c", IN_A_CIRCLE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "forgotten\n"), ran.stderr


def test_of_what_threads_have_done_together_each_goes_on_in_a_turn_of_its_own() -> None:
    """Tens of megabytes would be sent in one turn, and all others wait for it."""

    async def main() -> None:
        async with running(send_threads=2, buffer_bytes=4 * MB) as harness:
            threads, connections = harness.listener.endpoint.send_threads, harness.listener.endpoint.connections
            held: list[SendThreads] = []
            went_on: list[int] = []
            turns = 0

            def look() -> None:
                nonlocal turns
                turns += 1
                if len(held) >= 2:
                    before = {each: each.queued_bytes for each in connections}
                    for each in held:
                        each.do_next()
                    threads.collect()
                    went_on.append(sum(each.queued_bytes != size for each, size in before.items()))
                elif turns < 200:
                    harness.loop.call_soon(look)
                    return
                elif held:
                    threads.do_next()
                held.clear()
                turns = 0
                harness.loop.call_soon(look)

            threads.runner = held.append
            harness.loop.call_soon(look)
            content = fill(harness, 16 * MB)
            await until_lent(harness, 20, lambda: (read_on(harness, content, seed, 4) for seed in range(READERS)))
            assert went_on and set(went_on) == {1}

    uvloop.run(main())


def test_wrong_numbers_of_threads_are_refused() -> None:
    """A wrong number would start threads without an end, or none without a word."""
    with pytest.raises(ValueError, match="-1 threads"):
        SendThreads(None, -1)
    assert SendThreads(None, 100).limit == 8
    processors = len(os.sched_getaffinity(0))
    assert beside_the_loop(1) == 0
    assert beside_the_loop(3) == min(3, processors) - 1


def senders(broker: BrokerProcess) -> int:
    """How many of the broker's threads only send."""
    return len(threads_named("kbroker-send", broker.pid))


def filled_topic(broker: BrokerProcess) -> bytes:
    """Makes a topic and gives a request for 2 MB of it."""
    raw.create_topic(broker.port, "large")
    with RawClient(broker.port) as client:
        for _ in range(3):
            assert (
                raw.produce_answer(client.ask(raw.produce("large", 0, raw.good_batch(9, b"x" * 100_000))))[0]
                == raw.NONE
            )
    return raw.fetch("large", 0, 0, max_bytes=2 * MB)


def read_together(broker: BrokerProcess, fetch: bytes, rounds: int) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.port)) for _ in range(READERS)]
        for _ in range(rounds):
            for client in clients:
                client.send(fetch)
            answers = [client.read() or b"" for client in clients]
            assert len(answers[0]) > MB and all(each == answers[0] for each in answers)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="threads beside the loop are for other processors")
def test_the_setting_of_a_running_broker_counts(broker: BrokerProcess) -> None:
    """`num.network.threads` would be known and without effect."""
    with closing(Session(broker.port)) as s:
        fetch = filled_topic(broker)
        alter(s, ("num.network.threads", "2"))
        alter(s, ("num.network.threads", "1"))
        read_together(broker, fetch, 20)
        assert senders(broker) == 0
        alter(s, ("num.network.threads", "2"))
        deadline = time.monotonic() + SECONDS
        while not senders(broker):
            assert time.monotonic() < deadline
            read_together(broker, fetch, 20)
        assert senders(broker) == 1
