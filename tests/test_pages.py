"""The commands of the guides in docs/, run as they stand there, in their order, against a broker on its usual ports.
Those of operations.md are run by `cli/test_operations_page.py`.

What a page takes for granted (a topic, a group, a file) is made first.  Blocks of another kind than `sh` are shown to
the reader, and not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kbroker
from tests.test_readme import PROGRAM, launcher, program

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)

START = """
cat > server.properties <<'END'
log.dirs=data
END
kbroker start server.properties > broker.log 2>&1 &
until kbroker topics list > list.log 2>&1; do sleep 0.1; kill -0 $!; done
kbroker topics create orders -p 2 -c cleanup.policy=compact
printf 'alice:1 book\\nbob:2 pens\\n' | kbroker produce orders --key-separator :
kbroker consume orders --from-beginning --exit-at-end --group readers
"""

#: What each page takes for granted.
BEFORE = {
    "backup.md": START,
    "command-line.md": START,
    "quickstart.md": START,
}


def blocks(page: str) -> list[str]:
    """The page's commands."""
    return BLOCK.findall((DOCS / page).read_text())


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", BEFORE)
def test_a_pages_commands_do_what_they_say(page: str, tmp_path: Path) -> None:
    """Somebody with a full disk at night would be given a command that does not work."""
    parts = ["set -e -o pipefail", "if ip link set lo up 2> /dev/null; then :; fi", "trap 'kill $(jobs -p)' EXIT"]
    parts.append(BEFORE[page])
    for number, text in enumerate(blocks(page)):
        parts += [f"echo '== block {number}'", text]
    parts.append("echo '== all blocks are done'")
    program(tmp_path / "bin" / "kbroker", PROGRAM.format(python=sys.executable, module="kbroker.cli"))
    (tmp_path / "page.sh").write_text("\n".join(parts))
    environ = {key: value for key, value in os.environ.items() if not key.startswith("KBROKER_")}
    environ |= {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PATH": f"{tmp_path / 'bin'}:{environ['PATH']}",
        "PYTHONPATH": str(Path(kbroker.__file__).parents[1]),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    command = [*launcher(), "bash", "page.sh"]
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=170, check=False)
    log = tmp_path / "broker.log"
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}\n{log.read_text() if log.exists() else ''}"
    assert ran.stdout.endswith("== all blocks are done\n")
