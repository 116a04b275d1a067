"""Which module of `kbroker.schemas` holds which message."""

from __future__ import annotations

_APIS: dict[str, str] = {
    "produce": "Produce",
    "fetch": "Fetch",
    "api_versions": "ApiVersions",
    "metadata": "Metadata",
}

_DATA: dict[str, str] = {
    "headers": "RequestHeader ResponseHeader",
}

# API name (without Request or Response) to family; other messages by their whole name.
FAMILY_OF_API = {name: family for family, names in _APIS.items() for name in names.split()}
FAMILY_OF_DATA = {name: family for family, names in _DATA.items() for name in names.split()}
