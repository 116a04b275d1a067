"""Some thousand frames of strangers at a controller's listener; `make strangers COUNT=1000000` sends more.

Of `kbroker.cluster.raft.answers`, `kbroker.handlers.raft` and what a controller decides behind them.
"""

from __future__ import annotations

import pytest
import uvloop

from tests.fuzz.strangers.run import Run

COUNT = 4_000
FRAMES_OF_A_LIFE = 500


@pytest.mark.timeout(300)
def test_no_frame_of_a_stranger_harms_a_controller() -> None:
    """One that reaches the port would end the controller, change its log or its vote, or take its memory."""
    run = Run(20261, COUNT, frames=FRAMES_OF_A_LIFE)
    uvloop.run(run.run())
    assert run.judged >= COUNT and run.answered > run.hung_up > 0
    answered = {name.partition(" ")[0] for name in run.codes}
    taken = {name.partition(" ")[0] for name in run.codes if name.endswith(" NONE")}
    assert len(answered) > 30 and len(taken) > 20, (answered, taken)
