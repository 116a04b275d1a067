"""What the container files say, held against the checkout; tests/package/test_image.py runs their steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kbroker.config import BrokerConfig

ROOT = Path(__file__).resolve().parents[1]
COMPOSE = [ROOT / "docker" / name for name in ("compose.yaml", "compose.vs-kafka.yaml", "compose.schemas.yaml")]


def patterns(name: str) -> set[str]:
    """The patterns of an ignore file, without what only says where they begin."""
    lines = [line.strip() for line in (ROOT / name).read_text().splitlines()]
    return {line.removeprefix("**/").strip("/") for line in lines if line and not line.startswith("#")}


def test_an_image_is_built_of_what_git_has() -> None:
    """Gigabytes of a working tree would be sent to the daemon, or data and builds be in the image."""
    assert patterns(".gitignore") - patterns(".dockerignore") == set()
    needed = {
        "setup.py",
        "pyproject.toml",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
        "kbroker",
        "docker",
        "bench",
        "Makefile",
    }
    assert not needed & patterns(".dockerignore")


def environment(service: dict[str, Any]) -> dict[str, str]:
    """The variables of a service, its own defaults filled in."""
    given = {name: str(value) for name, value in service.get("environment", {}).items()}
    return {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in given.items()}


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_each_broker_advertises_the_address_that_is_published(path: Path) -> None:
    """Clients would be sent to the address inside of the container, which they cannot reach."""
    services = yaml.safe_load(path.read_text())["services"]
    brokers = 0
    for service in services.values():
        build = service.get("build")
        if build is not None:
            assert (path.parent / build["context"] / build["dockerfile"]).is_file()
        variables = environment(service)
        if build is None or build["dockerfile"] != "docker/Dockerfile":
            continue
        brokers += 1
        text = (ROOT / build["dockerfile"]).read_text()
        image = dict(re.findall(r"(KBROKER_\w+)=(\S+)", text))
        config = BrokerConfig.load(None, (), {**image, **variables})
        assert config.warnings == []
        published = {port.split(":")[-2] for port in service["ports"]}
        assert str(config.advertised_listeners[0].port) in published
        assert config.advertised_listeners[0].host == "localhost"
    assert brokers
