"""Large requests in pieces: decodes, encodes and frees messages for which that takes longer than a slice of the loop's
time.

The connection hands over what its first slice did not finish.  Handlers that work on many items await the same pace
(`_fast.base.slices`).  One request at a time per connection stays the rule: the connection is mute meanwhile, so its
answers keep their order.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from kbroker._fast.base.slices import Pace, Slices
from kbroker._fast.net.request_context import RequestContext
from kbroker._fast.wire.decoding import Decoding
from kbroker._fast.wire.disposal import Disposal
from kbroker._fast.wire.encoding import Encoding

# Some 0.2 ms of decoding, encoding or freeing.
PIECE_ITEMS = 1024


async def go_on(coroutine: Coroutine[object, None, object], waits_for: object) -> object:
    """The part of a coroutine that a task runs after the coroutine was begun without a task, up to its first wait.

    Tasks take no generator since Python 3.12, and `await` takes no coroutine that was begun.
    """
    rest = _rest(coroutine, waits_for)
    del waits_for  # A future keeps its error, and the error this frame.
    return await rest


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, Any], waits_for: object) -> Generator[Any, Any, Any]:
    try:
        yield waits_for
    except BaseException as error:
        del waits_for  # As above.
        try:
            waits_for = coroutine.throw(error)
        except StopIteration as stop:
            return stop.value
        return (yield from _rest(coroutine, waits_for))
    return (yield from coroutine)


async def in_pieces(work: Decoding | Encoding | Disposal, pace: Pace) -> None:
    """Run `work` to its end."""
    while not work.run(PIECE_ITEMS):
        await pace


async def serve(
    ctx: RequestContext, decoding: Decoding, handle: Callable[[RequestContext, object], object], slices: Slices
) -> None:
    """Decode a large request, have it handled, and free it."""
    pace = slices.pace()
    try:
        await in_pieces(decoding, pace)
    except ValueError as error:
        ctx.connection.malformed(ctx, error)
        return
    request = [decoding.take()]
    del decoding
    ctx.connection.decoded()
    answer = handle(ctx, request[0])
    if isinstance(answer, types.CoroutineType):
        answer = await answer
    ctx.take(answer)
    del answer
    await in_pieces(Disposal(request), pace)


async def respond(ctx: RequestContext, encoding: Encoding, answer: list[object], slices: Slices) -> None:
    """Encode the rest of a large answer, send it, and free what it was made of: all that `answer` holds."""
    pace = slices.pace()
    await in_pieces(encoding, pace)
    ctx.respond_frame(encoding.take())
    await in_pieces(Disposal(answer), pace)
