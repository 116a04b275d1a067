"""Consoles of other clusters, as `kbroker.console.links` names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Link:
    """The console of another cluster."""

    name: str
    address: str


def links_of(texts: Sequence[str]) -> list[Link]:
    """Of `name=https://…`; an address is its own name.  What is no address of a web page is left out."""
    found = []
    for text in texts:
        name, _, address = text.partition("=") if "://" in text.partition("=")[2] else (text, "", text)
        if urlsplit(address.strip()).scheme in ("http", "https"):
            found.append(Link(name.strip(), address.strip()))
    return found
