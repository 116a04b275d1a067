"""What Tab does in a shell that has read what docs/command-line.md says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import PROGRAM, program

SCRIPT = """
export PATH="{path}:$PATH"
source <(_KBROKER_COMPLETE=bash_source kbroker)
complete -p kbroker
COMP_WORDS=(kbroker topics des) COMP_CWORD=2
{function}
echo "${{COMPREPLY[@]}}"
"""


def test_bash_completes_what_kbrokers_own_script_says(tmp_path: Path) -> None:
    """The documented line would write a file that the shell cannot use."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    program(tmp_path / "kbroker", PROGRAM.format(python=sys.executable, module="kbroker.cli"))
    text = SCRIPT.format(path=tmp_path, function="_kbroker_completion kbroker")
    done = subprocess.run([bash, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    registered, completed = done.stdout.splitlines()
    assert "_kbroker_completion" in registered
    assert completed == "describe"
