"""A container without an engine: a root directory of its own, a network of its own, and the steps of docker/Dockerfile.

`python -m tests.images.bare_root` reads a `Plan` as JSON from standard input, plays it, and prints what came of it as
JSON.  It expects namespaces that nobody else shares (`isolated`), which end with it and take all mounts, addresses and
processes along.  The root has the system's /usr and /etc under layers of its own, so that nothing of the machine
changes; what the image installs by pip and apt is the tests' own environment there, and a stand-in for `nc`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
INSTALLED = re.compile(r"\b(apt-get|pip) ")
MOUNT = re.compile(r"--mount=\S+ ")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NETCAT = f"""#!{sys.executable}
import socket, sys
words = [word for word in sys.argv[1:] if not word.startswith("-")]
socket.create_connection((words[-2], int(words[-1])), timeout=5).close()
"""
_PACE = threading.Event()


@dataclass
class Plan:
    """What a compose file says of one service, and what is tried with it.

    `volumes`: (name or file, place) as in the file; `files` are the contents, in base64, of files on the host that it
    names.  `clients`: for names of listeners, settings of a client that is let in; `strangers` of one that is not."""

    folder: str
    service: str
    environment: dict[str, str]
    hostname: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    user: str = ""
    volumes: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)
    zookeeper: bool = False
    clients: dict[str, dict[str, str]] = field(default_factory=dict)
    strangers: dict[str, dict[str, str]] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    """The listeners that clients try; all when none is named."""
    groups: bool = True
    """Whether clients read as members of a group."""
    topics: dict[str, int] = field(default_factory=dict)
    """Topics that the container makes, with their partitions."""
    afterwards: list[list[str]] = field(default_factory=list)
    """Commands of other containers of the same image, which wait for this one."""
    ends: bool = False
    """Whether the container is to end by itself."""


def isolated(*command: str) -> list[str]:
    """What runs a command in namespaces of its own."""
    return ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", *command]


def instructions() -> Iterator[tuple[str, str]]:
    """The instructions of the image's last stage, continued lines joined."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [line.partition(" ") for line in "\n".join(lines).replace("\\\n", " ").splitlines()]
    last = max(index for index, (word, _, _) in enumerate(found) if word == "FROM")
    yield from ((word, rest.strip()) for word, _, rest in found[last + 1 :])


class Container:
    """The image's root directory, and what runs in it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.root = Path(plan.folder) / "root"
        self.user = "root"
        self.environment: dict[str, str] = {}
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        self.health: list[str] = []
        self.log = Path(plan.folder) / "container.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.anonymous: list[str] = []
        """Places that get a volume by themselves."""
        self.prefix: list[str] = []
        """What leads into a network of its own."""

    # The root directory

    def build(self) -> None:
        """Make the root and run the image's steps in it."""
        self.root.mkdir()
        run("mount", "-t", "tmpfs", "-o", "mode=755", "image", str(self.root))
        self._layer("usr")
        self._layer("etc")
        for name in MERGED:
            target = Path("/") / name
            if target.is_symlink():
                (self.root / name).symlink_to(os.readlink(target))
        for name in ("proc", "dev", "sys", "run", "var/lib", "root", "home"):
            (self.root / name).mkdir(parents=True, mode=0o755)
        (self.root / "tmp").mkdir()
        (self.root / "tmp").chmod(0o1777)
        (self.root / ".dockerenv").touch()
        # The machine's own engine is in no image.
        (self.root / "usr" / "local" / "bin" / "docker").unlink(missing_ok=True)
        (self.root / "usr" / "bin" / "docker").unlink(missing_ok=True)
        run("mount", "--rbind", "/dev", str(self.root / "dev"))
        run("mount", "-t", "proc", "proc", str(self.root / "proc"))
        for path in {str(ROOT), sys.prefix, sys.base_prefix}:
            if not path.startswith("/usr/"):
                (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
                run("mount", "--bind", path, str(self.root / path.lstrip("/")))
        for word, rest in instructions():
            self._step(word, rest)

    def _layer(self, name: str) -> None:
        """A directory of the system's, with a layer of its own above it."""
        upper, work = self.root / f".{name}", self.root / f".{name}-work"
        for path in (upper, work, self.root / name):
            path.mkdir()
        options = f"lowerdir=/{name},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", "-o", options, name, str(self.root / name))

    def _step(self, word: str, rest: str) -> None:
        match word:
            case "RUN" if INSTALLED.search(rest):
                netcat = self.root / "usr" / "local" / "bin" / "nc"
                netcat.write_text(NETCAT)
                netcat.chmod(0o755)
            case "RUN":
                # What it mounts is in the tree, which is in its own place here.
                shell = MOUNT.sub("", rest).replace("/docker/", f"{ROOT}/docker/")
                done = subprocess.run(self.chroot("sh", "-c", shell, user="root"), capture_output=True, check=False)
                assert done.returncode == 0, f"{rest}\n{done.stderr.decode()}"
            case "USER":
                self.user = rest
            case "VOLUME":
                self.anonymous.append(rest)
            case "ENV":
                self.environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
            case "ENTRYPOINT":
                self.entrypoint = json.loads(rest)
            case "CMD":
                self.command = json.loads(rest)
            case "HEALTHCHECK":
                self.health = json.loads(rest.partition("CMD ")[2])

    def mount(self) -> None:
        """The volumes of the compose file: a new one has what the image has in its place, as in Docker."""
        import base64

        for number, (source, place) in enumerate([*self.plan.volumes, *(("volume", each) for each in self.anonymous)]):
            target = self.root / place.lstrip("/")
            held = Path(self.plan.folder) / f"volume-{number}"
            content = {name: text for name, text in self.plan.files.items() if name == source or _is_in(name, source)}
            if source in content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()
                held.write_bytes(base64.b64decode(content[source]))
                # Whoever mounts a script has made it one.
                held.chmod(0o755)
            elif content or source.startswith((".", "/")):
                target.mkdir(parents=True, exist_ok=True)
                held.mkdir()
                for name, text in content.items():
                    (held / Path(name).relative_to(source)).write_bytes(base64.b64decode(text))
                if not content:
                    # An owner who mounts an empty directory lets the container write to it.
                    held.chmod(0o777)
            else:
                target.mkdir(parents=True, exist_ok=True)
                run("cp", "-a", str(target), str(held))
            run("mount", "--bind", str(held), str(target))

    def name_hosts(self) -> None:
        """Names that Docker's network would resolve, and addresses that are the host's there."""
        names = {self.plan.service, self.plan.hostname or self.plan.service, *self.plan.hosts}
        addresses = {name for name in names if re.fullmatch(r"[0-9.]+", name)}
        for address in addresses:
            run("ip", "address", "add", f"{address}/32", "dev", "lo")
        line = " ".join(["127.0.0.1 localhost", *sorted(names - addresses)])
        hosts = Path(self.plan.folder) / "hosts"
        hosts.write_text(f"{line}\n::1 localhost\n")
        run("mount", "--bind", str(hosts), "/etc/hosts")
        run("mount", "--bind", str(hosts), str(self.root / "etc" / "hosts"))

    # What runs in it

    def chroot(self, *words: str, user: str = "", **variables: str) -> list[str]:
        """What runs a command in it, with the variables of the compose file."""
        name = user or self.plan.user or self.user
        python = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "HOSTNAME": self.hostname}
        path = {
            "PATH": f"{Path(sys.executable).parent}:{PATH}",
            "HOME": "/root" if name == "root" else "/var/lib/kbroker",
        }
        given = {**path, **python, **self.environment, **variables}
        words_of_env = [f"{key}={value}" for key, value in given.items()]
        return [*self.prefix, "chroot", f"--userspec={name}", str(self.root), "env", "-i", *words_of_env, *words]

    @property
    def hostname(self) -> str:
        """The container's own name."""
        return self.plan.hostname or self.plan.service

    def start(self) -> None:
        """The container's process."""
        words = [*(self.plan.entrypoint or self.entrypoint), *(self.plan.command or self.command)]
        if self.plan.entrypoint and not self.plan.command:
            words = self.plan.entrypoint
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.chroot(*words, **self.plan.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def healthy(self) -> subprocess.CompletedProcess[bytes]:
        """The compose file's health check, or the image's."""
        words = self.chroot(*(self.plan.health or self.health), **self.plan.environment)
        return subprocess.run(words, capture_output=True, check=False)

    def wait(self, seconds: float = 90) -> None:
        """Until the health check succeeds."""
        assert self.process is not None
        deadline = time.monotonic() + seconds
        while (done := self.healthy()).returncode != 0:
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.output()}"
            assert time.monotonic() < deadline, f"{done.stdout!r} {done.stderr!r}\n{self.output()}"
            _PACE.wait(0.2)

    def stop(self) -> int:
        """As `docker stop` does: SIGTERM for the first process, and SIGKILL for what is left then; the status."""
        assert self.process is not None
        self.process.terminate()
        status = self.process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return status

    def end_in_order(self) -> None:
        """Stop it, and look at the status: that of the broker, or of a shell that the compose file puts before it."""
        status = self.stop()
        assert status in (0, -signal.SIGTERM), f"ended with {status}\n{self.output()}"
        assert status == 0 or self.plan.command, self.output()

    def output(self) -> str:
        """What it has printed."""
        return self.log.read_text(errors="replace")


def run(*words: str) -> None:
    """A command that must succeed."""
    subprocess.run(words, check=True, capture_output=True)


def _is_in(name: str, directory: str) -> bool:
    return name.startswith(f"{directory.rstrip('/')}/")


def advertised(container: Container) -> list[tuple[str, str, int]]:
    """(listener, host, port) of what clients are told, as the broker itself reads its settings."""
    program = (
        "from kbroker.config import BrokerConfig; import json\n"
        "config = BrokerConfig.load(None)\n"
        "told = {each.name: each for each in config.advertised_listeners}\n"
        "rows = [(each.name, told[each.name].host if each.name in told else '127.0.0.1',\n"
        "         told[each.name].port if each.name in told else each.port) for each in config.listeners]\n"
        "print(json.dumps([rows, config.log_dirs]))"
    )
    words = container.chroot(sys.executable, "-c", program, **container.plan.environment)
    rows, directories = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    container.plan.files["log.dirs"] = directories[0]
    return [(name, host, port) for name, host, port in rows]


def round_trip(bootstrap: str, settings: Mapping[str, str], topic: str, *, groups: bool) -> list[str]:
    """A record that a client has written and read; every value that it has read.  The topic makes itself."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    common = {"bootstrap.servers": bootstrap, "log_level": 0, **settings}
    failed: list[Any] = []
    producer = Producer({**common, "acks": "all"})
    producer.produce(
        topic, f"by {bootstrap}", partition=0, on_delivery=lambda error, _: error and failed.append(str(error))
    )
    assert producer.flush(60) == 0 and not failed, failed
    reading = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**common, **reading, "enable.partition.eof": True})
    if groups:
        consumer.subscribe([topic])
    else:
        consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None or message.partition() != 0:
                continue
            if message.error() is not None:
                # The end of the partition.
                return values
            values.append(message.value().decode())
    finally:
        consumer.close()
    return values


def is_refused(bootstrap: str, settings: Mapping[str, str]) -> bool:
    """Whether a client is not let in."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **settings}).list_topics(timeout=4)
    except KafkaException:
        return True
    return False


def play(plan: Plan) -> dict[str, Any]:
    """What came of a plan."""
    run("ip", "link", "set", "lo", "up")
    container = Container(plan)
    container.build()
    container.mount()
    container.name_hosts()
    server = _zookeeper(plan)
    try:
        container.start()
        assert container.process is not None
        if plan.ends:
            return {"status": container.process.wait(60), "output": container.output()}
        container.wait()
        report = _tried(container, plan)
        container.end_in_order()
        return {**report, "output": container.output()}
    finally:
        if container.process is not None and container.process.poll() is None:
            container.process.kill()
        if server is not None:
            server.stop()


def _zookeeper(plan: Plan) -> Any:
    if not plan.zookeeper:
        return None
    from tests.zookeeper_server import ZooKeeperServer

    folder = Path(plan.folder) / "zookeeper"
    folder.mkdir()
    server = ZooKeeperServer(folder)
    server.port = 2181
    server.launch()
    server.wait()
    return server


def _tried(container: Container, plan: Plan) -> dict[str, Any]:
    listeners = [each for each in advertised(container) if not plan.tried or each[0] in plan.tried]
    values = {}
    for name, host, port in listeners:
        settings = plan.clients.get(name, {})
        values[name] = round_trip(f"{host}:{port}", settings, f"of-{name.lower()}", groups=plan.groups)
        if name in plan.strangers:
            assert is_refused(f"{host}:{port}", plan.strangers[name]), f"listener {name} lets in strangers"
    outputs = []
    if plan.topics:
        _wait_for_topics(f"{listeners[0][1]}:{listeners[0][2]}", plan.topics)
    for words in plan.afterwards:
        done = subprocess.run(
            container.chroot(*container.entrypoint, *words), capture_output=True, text=True, timeout=120, check=False
        )
        outputs.append([done.returncode, done.stdout + done.stderr])
    # A second start finds what was written before.
    container.end_in_order()
    container.start()
    container.wait()
    name, host, port = listeners[0]
    again = round_trip(f"{host}:{port}", plan.clients.get(name, {}), f"of-{name.lower()}", groups=plan.groups)
    data = container.root / str(plan.files["log.dirs"]).lstrip("/")
    return {
        "values": values,
        "again": again,
        "afterwards": outputs,
        "data": [str(each) for each in data.glob("of-*")],
        "device": data.stat().st_dev != container.root.stat().st_dev,
        "log.dirs": plan.files["log.dirs"],
    }


def _wait_for_topics(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Until the container has made its topics."""
    from confluent_kafka.admin import AdminClient

    admin, deadline = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), time.monotonic() + 60
    while True:
        found = {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=20).topics.items()}
        if topics.items() <= found.items():
            return
        assert time.monotonic() < deadline, found
        _PACE.wait(0.2)


def main(words: Sequence[str]) -> None:
    """Plays the plan of standard input."""
    assert not words
    print(json.dumps(play(Plan(**json.load(sys.stdin)))))


if __name__ == "__main__":
    main(sys.argv[1:])
