"""Values of schema libraries as JSON has them."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID


def bytes_as_json(data: bytes) -> dict[str, str]:
    """Bytes that are no text."""
    return {"base64": base64.b64encode(data).decode()}


def plain(value: object) -> object:
    """The same in dict, list, str, int, float, bool and None: bytes in base64, times in ISO 8601, decimals and numbers
    that JSON lacks as text.  RecursionError for what is nested very deeply."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes_as_json(bytes(value))
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal | UUID):
        return str(value)
    return repr(value)
