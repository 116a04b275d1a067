"""Rules and meters for gates."""

from __future__ import annotations

from collections.abc import Callable

from kbroker.quotas.meters import QuotaMeters
from kbroker.quotas.rate import Windows
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.security.principal import AuthenticationState, Principal, Session


class Rules:
    """An authorizer that allows what it was given, and notes what it was asked."""

    def __init__(self, *allowed: tuple[Principal, Operation, str]) -> None:
        self.allowed = set(allowed)
        self.asked: list[tuple[Principal, Operation, str]] = []
        self.changed: list[Callable[[], None]] = []

    def is_authorized(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> bool:
        self.asked.append((principal, operation, name))
        return (principal, operation, name) in self.allowed

    def explain(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> str:
        return "a rule of the test"

    def subscribe(self, changed: Callable[[], None]) -> None:
        self.changed.append(changed)

    def change(self, *allowed: tuple[Principal, Operation, str]) -> None:
        self.allowed = set(allowed)
        self.tell()

    def tell(self) -> None:
        for changed in self.changed:
            changed()


def known(principal: Principal) -> Session:
    """The session of a client that has authenticated."""
    return Session(principal, "127.0.0.1", "PLAINTEXT", AuthenticationState.AUTHENTICATED)


def meters() -> QuotaMeters:
    return QuotaMeters(Windows(), Windows())
