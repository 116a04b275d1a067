"""Makes `setting_names.pyi`: the broker's settings by the type of their values, so that mypy knows what
`BrokerConfig.get` gives, and finds a name that is not one.

    python -m kbroker.config.names_stub
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.config.table import BROKER_TABLE
from kbroker.config.value import ConfigType

if TYPE_CHECKING:
    from kbroker.config.row import ConfigRow

STUB = Path(__file__).with_name("setting_names.pyi")
_KINDS = {
    ConfigType.BOOLEAN: "Bool",
    ConfigType.DOUBLE: "Float",
    ConfigType.INT: "Int",
    ConfigType.SHORT: "Int",
    ConfigType.LONG: "Int",
    ConfigType.LIST: "List",
}
"""The others are strings."""


def alias(row: ConfigRow) -> str:
    """The name of the settings with values like this one's; `Optional...` where there may be none."""
    kind = _KINDS.get(row.type, "Str")
    return f"Optional{kind}" if row.default is None else kind


def stub() -> str:
    """The text of the stub."""
    names: dict[str, list[str]] = {}
    for name, row in sorted(BROKER_TABLE.items()):
        names.setdefault(alias(row), []).append(name)
    lines = ['"""Made by `kbroker.config.names_stub`."""', "", "from typing import Literal", ""]
    for kind, members in sorted(names.items()):
        lines += [f"{kind}Setting = Literal[", *(f'    "{name}",' for name in members), "]", ""]
    return "\n".join(lines[:-1]) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub())
