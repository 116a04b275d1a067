"""What a coordinator of groups does not refuse for good while another broker may coordinate them by now.

A broker that was cut off does not hear that it has a successor, with members that it does not know: it would take one
of those for a stranger.  Most refusals have a member join anew, which finds the successor.  Those of `FOR_GOOD` end a
client, so it is sent to look for its coordinator instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final

from kbroker.coordinator.classic.messages import JoinReply, JoinResult, LeaveResult, SyncReply, SyncResult
from kbroker.errors import ErrorCode, KafkaError

FOR_GOOD: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)


class Refusals:
    """`may_be_superseded()`: whether others may have decided since without this broker."""

    __slots__ = ("_may_be_superseded",)

    def __init__(self, may_be_superseded: Callable[[], bool]) -> None:
        self._may_be_superseded = may_be_superseded

    def code(self, code: ErrorCode) -> ErrorCode:
        """The code that answers a client in the place of another."""
        return ErrorCode.NOT_COORDINATOR if code in FOR_GOOD and self._may_be_superseded() else code

    def codes(self, codes: list[ErrorCode]) -> list[ErrorCode]:
        """The same for each of many."""
        return codes if FOR_GOOD.isdisjoint(codes) else [self.code(each) for each in codes]

    def leaves(self, results: Sequence[LeaveResult]) -> list[LeaveResult]:
        """The same for those that leave."""
        return [each._replace(error=self.code(each.error)) for each in results]

    def joined(self, reply: JoinReply) -> JoinReply:
        """`reply`, which may be called much later."""

        def answer(result: JoinResult) -> None:
            code = self.code(result.error)
            reply(result if code is result.error else replace(result, error=code))

        return answer

    def synced(self, reply: SyncReply) -> SyncReply:
        """The same for SyncGroup."""

        def answer(result: SyncResult) -> None:
            code = self.code(result.error)
            reply(result if code is result.error else replace(result, error=code))

        return answer

    def raised(self) -> Refusals:
        """Around what is served: of an error that is raised meanwhile it makes the one that answers the client."""
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, KafkaError) and self.code(error.code) is not error.code:
            raise KafkaError.of(ErrorCode.NOT_COORDINATOR) from error
