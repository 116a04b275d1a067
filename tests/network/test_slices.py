"""Slices of the loop's time: long work yields, in turns, and a coroutine handler that never waits is no task."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from kbroker._fast.base.counters import RequestStats
from kbroker._fast.base.slices import Slices
from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker.handlers.dispatch import _program
from kbroker.network.coroutine_answer import CoroutineAnswer
from kbroker.network.limits import ConnectionLimits
from kbroker.network.listener import Listener, Route, SocketOptions
from kbroker.network.pieces import PIECE_ITEMS, go_on
from kbroker.schemas import message
from kbroker.security.plaintext import Plaintext

METADATA = 3
NAMES = 20_000


def test_work_within_its_slice_never_waits() -> None:
    """Small requests would pay for large ones."""

    async def main() -> None:
        slices = Slices(asyncio.get_running_loop(), 3_600_000_000)
        pace = slices.pace()
        for _ in range(1_000):
            await pace
        assert slices.count == 0
        assert not slices.busy

    uvloop.run(main())


def test_one_piece_of_work_goes_on_in_each_turn_of_the_loop() -> None:
    """With many large requests under way others would wait for a slice of each."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        slices = Slices(loop, 0)
        turns: list[int] = []
        turn = 0

        def count() -> None:
            nonlocal turn
            turn += 1
            if not done.is_set():
                loop.call_soon(count)

        async def work() -> None:
            pace = slices.pace()
            for _ in range(50):
                await pace
                turns.append(turn)

        done = asyncio.Event()
        loop.call_soon(count)
        await asyncio.gather(*(work() for _ in range(5)))
        done.set()
        assert len(turns) == 250
        assert max(map(turns.count, turns)) == 1
        assert slices.count == 250

    uvloop.run(main())


def test_work_that_is_cancelled_leaves_its_place() -> None:
    """A stop in the middle of large requests would leave the others waiting for a turn that never ends."""

    async def main() -> None:
        slices = Slices(asyncio.get_running_loop(), 0)

        async def work() -> None:
            pace = slices.pace()
            for _ in range(10):
                await pace

        first, second = asyncio.ensure_future(work()), asyncio.ensure_future(work())
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    uvloop.run(main())


def test_what_cannot_await_goes_on_in_its_turn() -> None:
    """Loading of coordinators and making of logs would have the loop beside all that awaits its pace."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        slices = Slices(loop, 0)
        turn = 0
        turns: list[int] = []
        over = asyncio.Event()

        def count() -> None:
            nonlocal turn
            turn += 1
            if not over.is_set():
                loop.call_soon(count)

        def call(left: int) -> None:
            turns.append(turn)
            assert pace.due()
            if left:
                pace.then(lambda: call(left - 1))
            else:
                over.set()

        async def work() -> None:
            own = slices.pace()
            for _ in range(20):
                await own
                turns.append(turn)

        pace = slices.pace()
        loop.call_soon(count)
        pace.then(lambda: call(20))
        await work()
        await over.wait()
        assert len(turns) == 41
        assert max(map(turns.count, turns)) == 1
        assert not slices.busy

    uvloop.run(main())


def test_a_call_has_a_whole_slice_when_its_turn_comes() -> None:
    """It would yield after each step, though nothing else waits."""

    async def main() -> None:
        slices = Slices(asyncio.get_running_loop(), 3_600_000_000)
        pace = slices.pace()
        due: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        pace.then(lambda: due.set_result(pace.due()))
        assert not await due

    uvloop.run(main())


def test_a_call_that_is_cancelled_never_comes_and_one_that_fails_holds_no_other_up() -> None:
    """A partition that was given up would go on loading, or one that cannot be loaded would stop all large requests."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        slices = Slices(None, 0)
        called: list[str] = []
        over = asyncio.Event()

        def fail() -> None:
            called.append("failed")
            raise ValueError("a call")

        pace = slices.pace()
        pace.then(lambda: called.append("cancelled")).cancel()
        pace.then(fail)
        pace.then(over.set)
        await over.wait()
        assert called == ["failed"]
        assert [type(failure) for failure in failures] == [ValueError]

    uvloop.run(main())


def test_a_task_goes_on_where_the_first_wait_was() -> None:
    """Failures and cancellations during a handler's first wait would pass it by."""

    async def waits(future: asyncio.Future[int]) -> int:
        try:
            return await future
        except KeyError:
            return -1

    async def main() -> None:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]
        tasks = []
        for future in futures:
            begun = waits(future)
            tasks.append(loop.create_task(go_on(begun, begun.send(None))))
        futures[0].set_result(7)
        futures[1].set_exception(KeyError())
        assert [await tasks[0], await tasks[1]] == [7, -1]
        tasks[2].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[2]

    uvloop.run(main())


def test_what_is_left_of_a_begun_coroutine_is_a_coroutine() -> None:
    """From Python 3.12 on, whose tasks take no generator, every request that waits would close its connection."""

    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        begun = waits()
        left = go_on(begun, begun.send(None))
        assert inspect.iscoroutine(left)
        left.close()
        begun.close()

    uvloop.run(main())


class Broker:
    """A listener with one handler, of Metadata 1, and slices of no length: every step is a slice."""

    def __init__(self, handle: Callable[[Any, Any], Any]) -> None:
        loop = asyncio.get_running_loop()
        self.slices = Slices(loop, 0)
        self.pool = BufferPool(16384, 64 << 20)
        self.complaints: list[str] = []
        self.listener = Listener(
            "PLAINTEXT",
            "127.0.0.1",
            0,
            SocketOptions(128),
            ConnectionLimits(50, 50, {}),
            reactor=Reactor(loop, self.pool, RequestStats()),
            routes=[
                Route(
                    METADATA,
                    0,
                    1,
                    handle,
                    lambda version: _program("MetadataRequest", version),
                    lambda version: _program("MetadataResponse", version),
                    99,
                    99,
                )
            ],
            unsupported=lambda ctx: None,
            max_frame_bytes=64 << 20,
            max_idle_ms=60_000,
            security=Plaintext(),
            slices=self.slices,
        )

    async def ask(self, *bodies: bytes) -> list[bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port, limit=64 << 20)
        try:
            for number, body in enumerate(bodies):
                writer.write(struct.pack(">ihhih", 10 + len(body), METADATA, 1, number, -1) + body)
            answers = []
            for number in range(len(bodies)):
                answer = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
                assert struct.unpack_from(">i", answer)[0] == number
                answers.append(answer[4:])
            return answers
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def serving(handle: Callable[[Any, Any], Any], test: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        broker = Broker(handle)
        await broker.listener.start()
        try:
            async with asyncio.timeout(60):
                await test(broker)
        finally:
            broker.listener.stop_accepting()
            broker.listener.close_connections()

    uvloop.run(main())


def names(count: int, text: str = "topic-%06d") -> bytes:
    request = message("MetadataRequest")
    topics = [request.MetadataRequestTopic(name=text % number) for number in range(count)]
    encoded: bytes = request.program(1).encode(request(topics=topics))
    return encoded


def echo(ctx: Any, request: Any) -> Any:
    response = message("MetadataResponse")
    return response(topics=[response.MetadataResponseTopic(name=topic.name) for topic in request.topics])


def expected(body: bytes) -> bytes:
    request, response = message("MetadataRequest"), message("MetadataResponse")
    encoded: bytes = response.program(1).encode(echo(None, request.program(1).decode(body)))
    return encoded


def test_a_large_request_is_served_in_many_slices_and_in_order() -> None:
    """It would hold the loop from its first byte to its answer's last; or a later request be answered before it."""

    async def test(broker: Broker) -> None:
        large, small = names(NAMES), names(3)
        assert await broker.ask(small) == [expected(small)]
        assert broker.slices.count == 0
        assert await broker.ask(small, large, small, large) == [expected(each) for each in (small, large, small, large)]
        # Decoded, encoded and freed, twice each; freeing the last may still go on.
        assert broker.slices.count > 2 * 2 * (NAMES // PIECE_ITEMS - 2)
        while broker.slices.busy:
            await asyncio.sleep(0)
        assert broker.pool.used_bytes == 0

    serving(echo, test)


def test_others_are_served_while_a_large_request_is() -> None:
    """The very stall: a client with one small request waits for all of a large one."""

    async def test(broker: Broker) -> None:
        large = asyncio.ensure_future(broker.ask(names(NAMES)))
        while broker.slices.count == 0:
            await asyncio.sleep(0)
        before = broker.slices.count
        small = names(1)
        assert await broker.ask(small) == [expected(small)]
        assert broker.slices.count - before < 20
        assert not large.done()
        await large

    serving(echo, test)


def test_a_malformed_large_request_ends_its_connection_alone() -> None:
    """Decoded outside of the connection's own call, it would leave the client waiting for ever."""

    async def test(broker: Broker) -> None:
        damaged = names(NAMES)[:-3]
        with pytest.raises(asyncio.IncompleteReadError):
            await broker.ask(damaged)
        small = names(1)
        assert await broker.ask(small) == [expected(small)]
        assert broker.listener.closed["malformed request"] == 1

    serving(echo, test)


def test_a_client_that_leaves_while_its_large_request_is_decoded_frees_all() -> None:
    """Its memory would count against everybody's budget for good."""

    async def test(broker: Broker) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", broker.listener.port)
        body = names(NAMES)
        writer.write(struct.pack(">ihhih", 10 + len(body), METADATA, 1, 7, -1) + body)
        while broker.slices.count == 0:
            await asyncio.sleep(0)
        writer.transport.abort()
        while broker.slices.busy or broker.listener.endpoint.connections:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert broker.pool.used_bytes == 0

    serving(echo, test)


def test_a_coroutine_that_never_waits_makes_no_task() -> None:
    """Each small request of a handler that may wait would cost a task."""
    tasks = 0

    async def handle(ctx: Any, request: Any) -> Any:
        nonlocal tasks
        tasks += asyncio.current_task() is not None
        return echo(ctx, request)

    async def test(broker: Broker) -> None:
        small = names(2)
        assert await broker.ask(small, small) == [expected(small)] * 2
        assert tasks == 0

    serving(handle, test)


def test_a_request_that_was_answered_leaves_no_cycle_behind() -> None:
    """Cycles that live when long-lived objects are frozen are never collected: each would stay for good."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ctx = Answered()

        async def answers_itself() -> None:
            await asyncio.sleep(0)

        answer = CoroutineAnswer(answers_itself(), loop)
        answer.begin(ctx)
        assert ctx.waiting is answer
        while ctx.waiting is not None:
            await asyncio.sleep(0)
        assert answer.done

    asyncio.run(main())


class Answered:
    """A request that its coroutine answers."""

    waiting: Any = None
