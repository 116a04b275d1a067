"""The settings of an authorizer, as people have them for Kafka's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.config.authorizer import OF_ZOOKEEPER, principals_of

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """Principals in `super_users` are texts such as `User:alice`.  `allows_unless_denied`: see `StandardAuthorizer`."""

    super_users: frozenset[str] = frozenset()
    allow_everyone: bool = False
    allows_unless_denied: bool = False


def authorizer_settings(config: BrokerConfig) -> AuthorizerSettings | None:
    """The settings; None where there is to be no authorizer."""
    name = config.get("authorizer.class.name")
    if not name:
        return None
    return AuthorizerSettings(
        super_users=frozenset(principals_of(config.get("super.users"))),
        allow_everyone=config.get("allow.everyone.if.no.acl.found"),
        allows_unless_denied=name in OF_ZOOKEEPER,
    )
