"""`make wheel`'s wheel on a bare Debian: no compiler, no clone, the layout that docs/quickstart.md describes.

The machine is a chroot that debootstrap makes, in a mount namespace of its own.  What the wheel requires comes
as wheels from outside, so that pip inside has no network and nothing to compile with.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.package.bare_system import Release, bare_system, run_inside

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
PACKAGES = ("python3", "python3-venv")
NOT_HERE = ("systemctl",)  # No systemd runs in a chroot; tests/broker/test_service_manager.py has its part.

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

INSIDE = """
set -e -o pipefail
mount -t proc proc /proc
for tool in cc gcc clang make; do ! command -v $tool; done
cd /checkout
{steps}
as() {{ su -s /bin/bash kbroker -c "cd /var/lib/kbroker && $1"; }}
install -d -o kbroker -g kbroker -m 750 /var/lib/kbroker
export PATH=/opt/kbroker/bin:$PATH
kbroker --version
as "kbroker doctor --quiet /etc/kbroker/server.properties"
as "exec kbroker start /etc/kbroker/server.properties" > /broker.log 2>&1 &
until kbroker topics list > /dev/null 2>&1; do sleep 0.2; kill -0 $!; done
{client}
test "$(stat -c %U /var/lib/kbroker/data)" = kbroker
kill "$(cat /var/lib/kbroker/data/.lock)"
wait $! || true
echo "== all done"
"""


def block(heading: str, kind: str) -> list[str]:
    """The commands of the first block of that kind under a heading of the page."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(rf"```{kind}\n(.*?)```", section, re.DOTALL)
    assert found is not None, heading
    return found[1].splitlines()


@pytest.fixture
def wheel() -> Path:
    """What `make wheel` left in dist/ for this processor and this Python."""
    release = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wheels = sorted((ROOT / "dist").glob(f"kbroker-*-{release}-*manylinux*_{platform.machine()}.whl"))
    if not wheels or release != "cp311":
        pytest.skip("needs dist/*.whl for Debian 12's Python 3.11: make wheel")
    return wheels[-1]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A bare Debian."""
    target = tmp_path / "machine"
    bare_system(target, Release("bookworm"), PACKAGES)
    return target


def test_the_wheel_is_a_service_where_there_is_no_compiler(wheel: Path, machine: Path) -> None:
    """An operator would meet a missing library, or steps that leave a broker which may not write its own directory."""
    packages = machine / "wheels"
    # Not `download`: of what is pure Python there may be an sdist alone.
    command = [sys.executable, "-m", "pip", "wheel", "-q", "-w", str(packages), str(wheel)]
    subprocess.run(command, check=True, timeout=600)
    shutil.copytree(ROOT / "docs", machine / "checkout" / "docs", ignore=shutil.ignore_patterns("benchmarks"))
    (machine / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
    steps = [line for line in block("As a service", "text") if not line.startswith(NOT_HERE)]
    built = steps.index("/opt/kbroker/bin/pip install .")
    steps[built] = "/opt/kbroker/bin/pip install -q --no-index --find-links /wheels kbroker"
    script = INSIDE.format(steps="\n".join(steps), client="\n".join(block("In an environment of Python", "sh")))
    done = run_inside(machine, script, seconds=600)
    log = machine / "broker.log"
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log.read_text() if log.exists() else ''}"
    assert "hello" in done.stdout and done.stdout.endswith("== all done\n")
