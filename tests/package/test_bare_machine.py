"""A wheel on a bare system: no compiler, no clone, the layout that docs/quickstart.md describes.

The machine is a chroot that debootstrap makes, in a mount namespace of its own.  A wheel that dist/ has not yet for its
Python is made there, by zig's compiler out of PyPI.  What the wheel requires is collected as wheels before, so that pip
has no network for the installation, and nothing to compile with.
"""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

import pytest

from tests.package.bare_system import as_connected, bare_system, run_inside
from tests.package.systems import SYSTEMS, System, clone, need_packages

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
# Headers, as the wheel is made there, and no compiler.
PACKAGES = ("python3", "python3-venv", "python3-dev")
NOT_HERE = ("systemctl",)  # No systemd runs in a chroot; tests/broker/test_service_manager.py has its part.

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

BUILD = """
set -e -o pipefail
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm
for tool in cc gcc clang make; do ! command -v $tool; done
cd /checkout
python3 -m venv /builds
/builds/bin/python -c 'import tomllib; wanted = tomllib.load(open("pyproject.toml", "rb")); \
  print("\\n".join(wanted["project"]["optional-dependencies"]["wheel"]))' > /requirements.txt
/builds/bin/pip install -q -r /requirements.txt
PATH="/builds/bin:$PATH" /builds/bin/python docker/wheel.py {processor}
rm -rf /builds
"""
INSIDE = """
set -e -o pipefail
mount -t proc proc /proc
for tool in cc gcc clang make; do ! command -v $tool; done
cd /checkout
{steps}
as() {{ su -s /bin/bash kbroker -c "PATH=$PATH; cd /var/lib/kbroker && $1"; }}
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


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> System:
    """Each release of Python, on a system that has it."""
    return SYSTEMS[request.param]


@pytest.fixture
def machine(system: System, tmp_path: Path) -> Path:
    """It is bare."""
    target = tmp_path / "machine"
    bare_system(target, system.release, PACKAGES)
    as_connected(target)
    return target


@pytest.fixture
def wheel(system: System, machine: Path) -> Path:
    """What `make wheel` left in dist/ for this processor and that Python; else it is made there, and left in dist/."""
    release = f"cp{system.python.replace('.', '')}"
    wanted = f"kbroker-*-{release}-{release}-manylinux*_{platform.machine()}.whl"
    if not any((ROOT / "dist").glob(wanted)):
        clone(machine)
        done = run_inside(machine, BUILD.format(processor=platform.machine()), seconds=1800, has_network=True)
        need_packages(done, f"Python {system.python}")
        (ROOT / "dist").mkdir(exist_ok=True)
        for made in (machine / "checkout" / "dist").glob(wanted):
            shutil.copy(made, ROOT / "dist")
        shutil.rmtree(machine / "checkout")
    return sorted((ROOT / "dist").glob(wanted))[-1]


def test_the_wheel_is_a_service_where_there_is_no_compiler(wheel: Path, machine: Path) -> None:
    """An operator would meet a missing library, or steps that leave a broker which may not write its own directory."""
    shutil.copy(wheel, machine)
    # Not `download`: of what is pure Python there may be an sdist alone.
    pip = "/brings/bin/pip"
    packages = f"python3 -m venv /brings && {pip} install -q wheel && {pip} wheel -q -w /wheels /{wheel.name}"
    done = run_inside(machine, packages, seconds=900, has_network=True)
    need_packages(done, wheel.name)
    shutil.copytree(ROOT / "docs", machine / "checkout" / "docs", ignore=shutil.ignore_patterns("benchmarks"))
    (machine / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
    steps = [line for line in block("As a service", "text") if not line.startswith(NOT_HERE)]
    built = steps.index("/opt/kbroker/bin/pip install .")
    steps[built] = "/opt/kbroker/bin/pip install -q --no-index --find-links /wheels kbroker"
    script = INSIDE.format(steps="\n".join(steps), client="\n".join(block("In an environment of Python", "sh")))
    done = run_inside(machine, script, seconds=600)
    log = machine / "broker.log"
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log.read_text() if log.exists() else ''}"
    # What the processor has is used, as by what gcc makes.
    flags = Path("/proc/cpuinfo").read_text().split()
    for flag, used in (("sse4_2", "crc32c: SSE 4.2"), ("avx2", "md5: AVX2")):
        assert flag not in flags or used in done.stdout, done.stdout
    assert "hello" in done.stdout and done.stdout.endswith("== all done\n")
