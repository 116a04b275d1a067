"""The users of all listeners with PLAIN, for those who are asked for a name and a password elsewhere than there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.config.jaas import JaasError, single_module
from kbroker.security.protocols import has_sasl
from kbroker.security.sasl.plain import PLAIN, PlainUsers

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

_MODULE = "PlainLoginModule"


class PlainLogins:
    """`config()` gives the settings by now: users may be changed at run time."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._known: dict[str, PlainUsers] = {}

    def accepts(self, name: str, password: str) -> bool:
        """Whether it is the password of a user at one of the listeners."""
        texts = self._texts(self._config())
        self._known = {text: self._known.get(text) or _users_of(text) for text in texts}
        # All are asked, so that the time says nothing of where a user is.
        found = [users.accepts(name, password) for users in self._known.values()]
        return True in found

    @staticmethod
    def _texts(config: BrokerConfig) -> list[str]:
        found = []
        for listener in config.every_listener:
            enabled = config.for_listener(listener.name, "sasl.enabled.mechanisms")
            if has_sasl(listener.protocol) and isinstance(enabled, list) and PLAIN in map(str, enabled):
                text = config.for_mechanism(listener.name, PLAIN, "sasl.jaas.config")
                found += [str(text)] if text else []
        return found


def _users_of(text: str) -> PlainUsers:
    try:
        module = single_module(text)
    except JaasError:
        return PlainUsers({})  # The listener says what is wrong with it.
    return PlainUsers(module.options if module.short_name == _MODULE else {})
