"""The README's two commands on bare systems: a C compiler, Python and make, and nothing else; no git among what lacks.

The set-up has the network that this machine has.  Both commands then run with loopback alone, so that they use what
the set-up has brought, and the ports that the README names.

Also of `tests.package.systems`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.package.systems import SYSTEMS, run_and_speak, run_tests, set_up

SECONDS = 3600

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * SECONDS)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_both_commands_do_everything(system: str, tmp_path: Path) -> None:
    """Who tries kbroker would meet a missing package, an older library, or tests that fail."""
    machine = tmp_path / "machine"
    set_up(machine, system, seconds=SECONDS)
    run_and_speak(machine)
    print(system, run_tests(machine, "make test", seconds=SECONDS))
