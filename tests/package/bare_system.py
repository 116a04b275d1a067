"""A bare system in a directory, which debootstrap makes, and scripts that run in it as root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

NETWORK = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
"""How this machine finds what it installs."""
ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child")


@dataclass(frozen=True, slots=True)
class Release:
    """`script`: debootstrap's, where it has none of that name; such a release is not checked by its keys."""

    name: str
    script: str = ""
    components: str = "main"


def bare_system(target: Path, release: Release, packages: Sequence[str], *, seconds: float = 900) -> None:
    """Make it; the test is skipped where that cannot be, or takes longer than `seconds`."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None or shutil.which("unshare") is None:
        pytest.skip("needs root, debootstrap and unshare")
    if subprocess.run([*ISOLATED, "--net", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False).returncode != 0:
        pytest.skip("may not have namespaces of its own here")
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    command.append(f"--components={release.components}")
    if release.script:
        # The last two words are the mirror, which is the script's own, and the script.
        script = Path("/usr/share/debootstrap/scripts", release.script)
        command += ["--no-check-gpg", release.name, str(target), "", str(script)]
    else:
        command += [release.name, str(target)]
    # A time-out is a mirror's that gives little: `timeout` ends the downloads as well.
    command = ["timeout", "--kill-after=10", str(seconds), *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"debootstrap made no {release.name}: {done.stdout[-300:]}{done.stderr[-300:]}")


def as_connected(target: Path) -> None:
    """What is installed comes the way that it comes to this machine."""
    for name in NETWORK:
        source, copy = Path("/") / name, target / name
        if source.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            shutil.copyfile(source, copy)


def run_inside(
    target: Path, script: str, *, seconds: float, has_network: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a script by bash in processes of its own, which all end with it; without `has_network` it has loopback
    alone."""
    (target / "script.sh").write_text(script)
    environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
    if has_network:
        environ |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    isolated = [*ISOLATED, *([] if has_network else ["--net"])]
    begins = 'ip link set lo up; mount --bind /dev "$0/dev"; exec chroot "$0" bash /script.sh'
    return subprocess.run(
        [*isolated, "sh", "-c", begins, str(target)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
