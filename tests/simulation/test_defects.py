"""What brokers say of themselves: what has to end a history, and what may not."""

from __future__ import annotations

import contextlib
import logging

import pytest

from kbroker.errors import NotControllerError
from tests.simulation.defects import Defects
from tests.simulation.loop import SimulatedLoop


def failures(name: str, error: BaseException | None, level: int = logging.ERROR) -> list[str]:
    """What a history says to which a broker says that something has failed."""
    loop = SimulatedLoop(1)
    logger, defects = logging.getLogger(name), Defects(loop)
    with contextlib.closing(loop):
        logger.addHandler(defects)
        try:
            logger.log(level, "a fetch failed", exc_info=error)
        finally:
            logger.removeHandler(defects)
        assert (loop.first_error is None) == (not loop.failures)
        return loop.failures


def test_an_exception_that_nobody_expected_ends_a_history() -> None:
    """A fetcher that fails and begins anew would hide its fault for ever."""
    assert failures("kbroker.replication", ValueError("odd")) == ["a broker says: a fetch failed: ValueError('odd')"]


OF_ONE_THAT_GOES = RuntimeError("coroutine ignored GeneratorExit")


@pytest.mark.parametrize("error", [OSError(5, "no"), NotControllerError("away"), OF_ONE_THAT_GOES, None])
def test_what_comes_of_the_surroundings_is_no_defect(error: BaseException | None) -> None:
    """Every fault of a disk would end its history."""
    assert not failures("kbroker.replication", error)


def test_what_is_no_error_or_nobodys_of_kbroker_is_no_defect() -> None:
    """A library's words would pass for a broker's."""
    assert not failures("kbroker.replication", ValueError("odd"), logging.WARNING)
    assert not failures("elsewhere", ValueError("odd"))
