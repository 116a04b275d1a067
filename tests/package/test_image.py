"""The steps of docker/Dockerfile, run one by one in directories that stand for its images, where no daemon is needed.

IMAGE_ROOT names a bare Debian with Python that stands for the base image:

    debootstrap --variant=minbase --include=python3-dev,python3-pip,python3-venv,python-is-python3,ca-certificates \\
      bookworm /var/tmp/debian

Root only.  The broker runs in a network of its own, so that the image's ports are free; clients are its own commands.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.package.built_archives import tracked

ROOT = Path(__file__).resolve().parents[2]
OF_THE_MACHINE = ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt")
MOUNT = re.compile(r"--mount=type=bind,from=(\w+),source=(\S+),target=(\S+) ")


@dataclass
class Stage:
    """An image while it is built."""

    root: Path
    user: str = "root"
    environment: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def chroot(self, *words: str, user: str = "") -> list[str]:
        """What runs a command in it."""
        # Debian's own Python lets pip install beside its packages only when told so; the base image's needs no word.
        variables = {
            "PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            **self.environment,
        }
        home = {"HOME": "/root" if (user or self.user) == "root" else f"/var/lib/{user or self.user}"}
        given = [f"{name}={value}" for name, value in (variables | home).items()]
        return ["chroot", f"--userspec={user or self.user}", str(self.root), "env", "-i", *given, *words]


def instructions() -> Iterator[tuple[str, str]]:
    """The lines of the Dockerfile, continued ones joined."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        yield word, rest.strip()


def build(base: Path, folder: Path) -> Stage:
    """Runs the instructions; the last stage."""
    stages: dict[str, Stage] = {}
    stage = Stage(folder)
    for word, rest in instructions():
        match word:
            case "FROM":
                name = rest.partition(" AS ")[2] or "last"
                subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(folder / name)], check=True)
                for each in OF_THE_MACHINE:
                    shutil.copyfile(f"/{each}", folder / name / each)
                stage = stages[name] = Stage(folder / name)
            case "COPY":
                assert rest == ". /src"
                for each in tracked():
                    target = stage.root / "src" / each
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / each, target)
            case "RUN":
                run(stage, stages, rest)
            case "USER":
                stage.user = rest
            case "ENV":
                stage.environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
            case "VOLUME":
                assert (stage.root / rest.lstrip("/")).is_dir()
            case "ENTRYPOINT":
                stage.entrypoint = json.loads(rest)
            case "CMD":
                stage.command = json.loads(rest)
            case "HEALTHCHECK":
                stage.health = json.loads(rest.partition("CMD ")[2])
            case _:
                assert word in ("EXPOSE", "STOPSIGNAL"), word
    return stage


def run(stage: Stage, stages: dict[str, Stage], text: str) -> None:
    """One RUN, with what it mounts copied there for as long."""
    mounted = [stage.root / target.lstrip("/") for _, _, target in MOUNT.findall(text)]
    for (name, source, _), target in zip(MOUNT.findall(text), mounted, strict=True):
        shutil.copytree(stages[name].root / source.lstrip("/"), target)
    done = subprocess.run(
        stage.chroot("sh", "-c", MOUNT.sub("", text), user="root"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    for target in mounted:
        shutil.rmtree(target)


@pytest.fixture(scope="module")
def image() -> Iterator[Stage]:
    """The image that the Dockerfile makes."""
    base = os.environ.get("IMAGE_ROOT")
    if base is None or os.geteuid() != 0:
        pytest.skip("needs root, and IMAGE_ROOT, a bare Debian with Python")
    with tempfile.TemporaryDirectory(dir=Path(base).parent, prefix="image-") as folder:
        yield build(Path(base), Path(folder))


def alone(*lines: str) -> subprocess.CompletedProcess[str]:
    """Runs lines of a shell in a network of their own."""
    script = "\n".join(("set -e", "ip link set lo up", *lines))
    return subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.timeout(1800)
def test_the_image_serves_and_is_healthy(image: Stage) -> None:
    """Who starts the container would find a broker that does not start, is never healthy, or forgets its data."""
    start = shlex.join(image.chroot(*image.entrypoint, *image.command))
    health = shlex.join(image.chroot(*image.health))
    kbroker = shlex.join(image.chroot("kbroker"))
    serve = (
        f"{start} > {image.root}/out 2>&1 &",
        "pid=$!",
        f"until {health} 2> /dev/null; do kill -0 $pid; sleep 0.2; done",
    )
    first = alone(*serve, f"{kbroker} topics create t", f"echo hello | {kbroker} produce t", "kill $pid; wait $pid")
    assert first.returncode == 0, first.stdout + first.stderr + (image.root / "out").read_text()
    second = alone(*serve, f"{kbroker} consume t --from-beginning --exit-at-end", "kill $pid; wait $pid")
    assert second.returncode == 0 and "hello" in second.stdout, second.stdout + second.stderr
    data = image.root / "var" / "lib" / "kbroker" / "data"
    assert data.stat().st_uid != 0 and (data / "t-0").is_dir()


@pytest.mark.timeout(600)
def test_a_mounted_directory_of_another_user_is_told(image: Stage) -> None:
    """Who mounts a directory that root has made would see a restart loop with "Permission denied"."""
    mounted = image.root / "srv" / "mounted"
    mounted.mkdir(mode=0o755)
    image.environment["KBROKER_LOG_DIRS"] = "/srv/mounted"
    done = alone(shlex.join(image.chroot(*image.entrypoint, *image.command)))
    user = (image.root / "var" / "lib" / "kbroker").stat().st_uid
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert f"may not be written by user {user}: it belongs to user 0: `sudo chown -R {user} /srv/mounted`" in said
