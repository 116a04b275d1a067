"""Tests of `kbroker.config.names_stub`: mypy knows each setting's type by its name."""

from __future__ import annotations

from kbroker.config import BrokerConfig
from kbroker.config.names_stub import STUB, alias, stub
from kbroker.config.table import BROKER_TABLE


def test_the_stub_is_that_of_the_tables() -> None:
    """mypy would take a name for a setting that is none any more, or miss one."""
    assert STUB.read_text() == stub()


def test_defaults_have_the_types_that_mypy_is_told_of() -> None:
    """What `BrokerConfig.get` gives would not be what its caller was checked against."""
    types = {"Bool": bool, "Float": float, "Int": int, "List": list, "Str": str}
    config = BrokerConfig.from_mapping({})
    for name, row in BROKER_TABLE.items():
        kind = alias(row)
        value = config.value_of(name)
        assert value is None or isinstance(value, types[kind.removeprefix("Optional")]), name
        assert value is not None or kind.startswith("Optional"), name
