"""The README's two commands on bare systems: a C compiler, Python and make, and nothing else; no git among what lacks.

The set-up has the network that this machine has.  Both commands then run with loopback alone, so that they use what
the set-up has brought, and the ports that the README names.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.archives import unpack
from tests.package.bare_system import Release, as_connected, bare_system, run_inside

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("python3", "python3-venv", "python3-dev", "build-essential")
SYSTEMS = {
    "Debian 12": Release("bookworm"),
    "Debian 13": Release("trixie"),
    "Ubuntu 24.04": Release("noble", "gutsy", "main,universe"),
}
SECONDS = 3600

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * SECONDS)]

BEGIN = """
set -e -o pipefail
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
cd /checkout
for tool in git kcat java node; do ! command -v $tool; done
"""
SET_UP = "make install .venv/made/test"
RUN = """
make run > /run.log 2>&1 &
for attempt in $(seq 300); do .venv/bin/kbroker topics list > /dev/null 2>&1 && break; sleep 0.2; done
echo hello | .venv/bin/kbroker produce greetings
.venv/bin/kbroker consume greetings --from-beginning --max-messages 1
kill "$(cat data/.lock)"
wait
"""


def clone(target: Path) -> None:
    """What a clone has."""
    archive = target / "clone.tar"
    subprocess.run(["git", "archive", "-o", str(archive), "HEAD"], cwd=ROOT, check=True)
    unpack(archive, target / "checkout")


@pytest.mark.parametrize("system", SYSTEMS)
def test_both_commands_do_everything(system: str, tmp_path: Path) -> None:
    """Who tries kbroker would meet a missing package, an older library, or tests that fail."""
    machine = tmp_path / "machine"
    bare_system(machine, SYSTEMS[system], PACKAGES)
    as_connected(machine)
    clone(machine)
    done = run_inside(machine, BEGIN + SET_UP, seconds=SECONDS, has_network=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    done = run_inside(machine, BEGIN + RUN, seconds=300)
    assert done.returncode == 0 and done.stdout.endswith("hello\n"), done.stdout + done.stderr
    done = run_inside(machine, f"{BEGIN}make test", seconds=SECONDS)
    summary = re.findall(r"^(?:FAILED .*|=* ?\d+ (?:passed|failed).*)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, "\n".join(summary) or done.stdout[-3000:] + done.stderr[-3000:]
