"""Public compose files of Kafka's images come up with kbroker's image in their place.

Each runs without an engine: the steps of docker/Dockerfile in a root directory of its own, then its entrypoint with the
file's variables, volumes, names and health check, in a network of its own, so that ports are the file's, too
(`tests.images.bare_root`).  Root only.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.images.bare_root import ROOT, Plan, isolated
from tests.security.tls.authority import Authority
from tests.tools import missing, require_tool

FILES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "compose_files.yaml").read_text())
REFUSED: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "refused_files.yaml").read_text())


class Secrets:
    """Keys, certificates and stores of one test."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.authority = Authority()
        self.issued = self.authority.issue(hosts=["localhost", "127.0.0.1", *names])
        self.ca = self.authority.write_pem(folder / "ca.pem")
        self.client = self.issued.write_pem(folder / "client.pem")

    def content(self, made: Mapping[str, str]) -> bytes:
        """The bytes of a file on the host."""
        path = self.folder / "store"
        if "keystore" in made and made.get("kind") == "pkcs12":
            return self.issued.write_pkcs12(path, made["keystore"]).read_bytes()
        if "keystore" in made:
            return self.issued.write_jks(path, made["keystore"], made["keystore"]).read_bytes()
        if "truststore" in made:
            return self.authority.write_jks(path, made["truststore"]).read_bytes()
        return made["text"].encode()

    def client_settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """A client's settings with its files."""
        places = {"{ca}": str(self.ca), "{client}": str(self.client)}
        return {key: places.get(value, value) for key, value in given.items()}


def health(test: list[str] | None) -> list[str]:
    """The words of a compose file's health check."""
    if not test:
        return []
    return ["sh", "-c", test[1]] if test[0] == "CMD-SHELL" else test[1:]


def plan(said: Mapping[str, Any], folder: Path) -> Plan:
    """What is to be played for a service of a compose file."""
    secrets = Secrets(folder, [said["service"]])
    volumes = [tuple(each.split(":")[:2]) for each in said.get("volumes", [])]
    clients, strangers = (
        {name: secrets.client_settings(each) for name, each in said.get(kind, {}).items()}
        for kind in ("clients", "strangers")
    )
    return Plan(
        str(folder),
        said["service"],
        {name: str(value) for name, value in said["environment"].items()},
        entrypoint=said.get("entrypoint", []),
        command=said.get("command", []),
        health=health(said.get("health")),
        user=said.get("user", ""),
        volumes=[(source, place) for source, place in volumes],
        files={name: base64.b64encode(secrets.content(each)).decode() for name, each in said.get("files", {}).items()},
        hosts=[*said.get("hosts", []), *([said["zookeeper"]] if "zookeeper" in said else [])],
        zookeeper="zookeeper" in said,
        clients=clients,
        strangers=strangers,
        tried=said.get("tried", []),
        topics=said.get("topics", {}),
        afterwards=said.get("afterwards", []),
        ends=said.get("ends", False),
    )


def played(said: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What came of it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for a root directory and a network of its own")
    for tool in ("unshare", "chroot", "mount", "ip"):
        if shutil.which(tool) is None:
            missing(tool, "util-linux, coreutils and iproute2 have what stands for an engine")
    if "zookeeper" in said:
        require_tool("java")
    done = subprocess.run(
        isolated(sys.executable, "-m", "tests.images.bare_root"),
        input=json.dumps(asdict(plan(said, folder))),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_there_are_twenty_public_files_of_every_image() -> None:
    """The tests below would say little about the files that people have."""
    assert len({each["origin"] for each in FILES}) == len(FILES) >= 20
    assert all("/" in each["origin"].split()[0] for each in FILES)
    variables = {name for each in FILES for name in each["environment"]}
    assert {"CLUSTER_ID", "KAFKA_CFG_LISTENERS", "KAFKA_ADVERTISED_HOST_NAME", "KAFKA_CREATE_TOPICS"} <= variables
    assert sum("strangers" in each for each in FILES) >= 5
    for each in FILES:
        ports = {port.partition(":")[2] for port in each.get("ports", [])}
        assert ports or "." not in each["service"]


@pytest.mark.timeout(400)
@pytest.mark.compat
@pytest.mark.parametrize("said", FILES, ids=lambda said: said["origin"].replace("/", "-").replace(" ", "_"))
def test_the_compose_file_comes_up(said: dict[str, Any], tmp_path: Path) -> None:
    """Whoever changes the image's name would have a container that ends, is never healthy, or that nobody reaches."""
    report = played(said, tmp_path)
    listeners = set(report["values"])
    assert listeners and set(said.get("clients", {})) <= listeners
    assert all(len(values) == 1 for values in report["values"].values())
    assert len(report["again"]) == 2
    assert report["data"], report["log.dirs"]
    assert report["device"] or not said.get("on_volume")
    for status, output in report["afterwards"]:
        assert status == 0, output
