"""A container engine of one's own: podman with its images, volumes and networks in a folder, in a network of its own.

Base images come from their registry where that answers; else a bare Debian with Python, which debootstrap makes,
stands for Python's, and images of the same names with Java and the tests' jars for Kafka's and ZooKeeper's.  Kafka's
own classes turn the environment into its settings there, as they do in its image.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.tooling import kafka_jars, old_kafka_jars
from tests.package.bare_system import Release, as_connected, bare_system

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "docker.io/library/python:3.11-slim-bookworm"
PACKAGES = ("python3-dev", "python3-pip", "python3-venv", "python-is-python3", "ca-certificates")
JAVA = f"""
FROM {PYTHON}
RUN apt-get update && mkdir -p /usr/share/man/man1 && apt-get install -y --no-install-recommends openjdk-17-jre-headless
COPY jars /jars
COPY --chmod=755 start /start
ENTRYPOINT ["/start"]
"""
KAFKA_START = """#!/bin/sh
set -e
export LOG_DIR=/tmp
mkdir -p /etc/kafka/docker /mnt/shared/config /opt/kafka/config
java -cp '/jars/*' kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \\
    --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config
exec java -Xmx192m -Dlog4j2.configurationFile=/jars/log4j2-INFO.properties -cp '/jars/*' kafka.Kafka \\
    /opt/kafka/config/server.properties
"""
ZOOKEEPER_START = """#!/bin/sh
printf 'tickTime=500\\ndataDir=/data\\nclientPort=2181\\nadmin.enableServer=false\\n' > /zoo.cfg
exec java -Xmx128m -cp '/jars/*' org.apache.zookeeper.server.quorum.QuorumPeerMain /zoo.cfg
"""
CONTAINERS = """
[engine]
runtime = "{runtime}"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{folder}/run/libpod"
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""
FILES = 1048576
"""As many as the compose files ask for."""
PROCESSES = 32768
"""Less than engines ask for by themselves."""
NEEDED = ("podman", "podman-compose", "iptables", "nsenter", "unshare", "ip")


def need_an_engine() -> None:
    """Skip where there is none: Debian's podman, podman-compose, runc, netavark, aardvark-dns and iptables."""
    lacking = [tool for tool in NEEDED if shutil.which(tool) is None]
    if os.geteuid() != 0 or lacking:
        pytest.skip(f"needs root and a container engine, lacks {', '.join(lacking) or 'root'}")


class Engine:
    """Runs podman.  To containers the host's network is one that `unshare` makes; builds have the machine's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        runtime = "runc" if shutil.which("runc") else "crun"
        # A machine that is one of many itself may have no right to raise its own limits.
        self._files = min(FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        self._processes = min(PROCESSES, resource.getrlimit(resource.RLIMIT_NPROC)[1])
        settings = CONTAINERS.format(folder=folder, runtime=runtime, files=self._files, processes=self._processes)
        (folder / "containers.conf").write_text(settings)
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
        self.environ = {
            **os.environ,
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            # Images of OCI's own format have no health check.
            "BUILDAH_FORMAT": "docker",
            "PYTHONPATH": str(ROOT),
        }
        self._network = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._network.stdin is not None and self._network.stdout is not None
        # Its answer says that it is in the new network.
        self._network.stdin.write(b"\n")
        self._network.stdin.flush()
        self._network.stdout.read(1)
        self.inside = ["nsenter", f"--net=/proc/{self._network.pid}/ns/net"]
        self.run(*self.inside, "ip", "link", "set", "lo", "up")

    def run(self, *words: str, seconds: float = 120, check: bool = True, stdin: str = "") -> str:
        """What a command prints; AssertionError with all of it where it fails."""
        done = subprocess.run(
            words, env=self.environ, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert not check or done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def podman(self, *words: str, seconds: float = 120, check: bool = True) -> str:
        """The same of podman in the containers' network."""
        return self.run(*self.inside, "podman", *words, seconds=seconds, check=check)

    def compose(self, project: str, file: str, *words: str, seconds: float = 300, check: bool = True) -> str:
        """podman-compose, of a file of docker/ as it is, but for a limit of open files that this machine has not."""
        text = (ROOT / "docker" / file).read_text()
        place = self.folder / file
        if self._files < FILES:
            text = text.replace(f"nofile: {FILES}", f"nofile: {self._files}\n      nproc: {self._processes}")
        place.write_text(text)
        command = ["podman-compose", "-p", project, "-f", str(place), *words]
        return self.run(*self.inside, *command, seconds=seconds, check=check)

    def kbroker(self, *words: str, stdin: str = "", check: bool = True) -> str:
        """A command of kbroker on the containers' host."""
        return self.run(*self.inside, sys.executable, "-m", "kbroker.cli", *words, stdin=stdin, check=check)

    def build(self, tag: str, *words: str, seconds: float = 3600) -> None:
        """An image of a Dockerfile."""
        self.run("podman", "build", "--network=host", "--pull=never", "-t", tag, *words, seconds=seconds)

    def has(self, image: str) -> bool:
        """Whether there is such an image, after asking its registry."""
        if self.run("podman", "images", "-q", image).strip():
            return True
        pull = ["timeout", "120", "podman", "pull", "-q", image]
        return subprocess.run(pull, env=self.environ, capture_output=True, check=False).returncode == 0

    def need_python(self) -> None:
        """The image that docker/Dockerfile begins with."""
        if self.has(PYTHON):
            return
        base = self.folder / "base"
        bare_system(base, Release("bookworm"), PACKAGES)
        as_connected(base)
        # The image's own Python lets pip install beside it.
        for mark in base.glob("usr/lib/python3.*/EXTERNALLY-MANAGED"):
            mark.unlink()
        archive = self.folder / "base.tar"
        self.run("tar", "-C", str(base), "-cf", str(archive), ".", seconds=600)
        self.run("podman", "import", str(archive), PYTHON, seconds=600)
        archive.unlink()
        shutil.rmtree(base)

    def need_java(self, image: str, jars: Path, start: str) -> None:
        """Kafka's image or ZooKeeper's, or what stands for it."""
        if self.has(image):
            return
        self.need_python()
        context = self.folder / "context"
        shutil.copytree(jars, context / "jars")
        (context / "start").write_text(start)
        (context / "Dockerfile").write_text(JAVA)
        self.build(image, str(context))
        shutil.rmtree(context)

    def need_kafka(self, release: str) -> None:
        """apache/kafka."""
        self.need_java(f"docker.io/apache/kafka:{release}", kafka_jars(), KAFKA_START)

    def need_zookeeper(self, release: str) -> None:
        """zookeeper; another release stands for it."""
        self.need_java(f"docker.io/library/zookeeper:{release}", old_kafka_jars(), ZOOKEEPER_START)

    def close(self, *, keeps_images: bool) -> None:
        """End containers, and the network with what runs in it."""
        self.podman("rm", "--all", "--force", "--time", "1", check=False)
        self.podman("volume", "prune", "--force", check=False)
        for name in self.podman("network", "ls", "-q", check=False).split():
            self.podman("network", "rm", "--force", name, check=False)
        if not keeps_images:
            self.podman("rmi", "--all", "--force", seconds=600, check=False)
        for mounted in (self.folder / "graph" / "overlay", self.folder / "run" / "netns"):
            subprocess.run(["umount", "--lazy", str(mounted)], capture_output=True, check=False)
        if not keeps_images:
            shutil.rmtree(self.folder, ignore_errors=True)
        assert self._network.stdin is not None and self._network.stdout is not None
        self._network.stdin.close()
        self._network.stdout.close()
        self._network.wait()
