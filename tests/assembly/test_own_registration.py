"""A controller registers at the active one: `kbroker.cluster.controller.registration`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import uvloop

from kbroker.errors import NotControllerError
from kbroker.metadata.features import Features
from kbroker.metadata.image import ControllerImage, MetadataDelta
from kbroker.schemas import wire
from tests.assembly.quorum_stand_ins import ControllerBench, running

LEVEL = 30


def publish(bench: ControllerBench, **changes: Any) -> None:
    """Have a node's image and its subscribers know of a change, as if it came by the log."""
    cache, metadata = bench.node.part.cache, bench.node.part.metadata
    delta = MetadataDelta(**changes)
    cache.publish(cache.image.apply(delta), delta)
    metadata._changes.announce()
    for changed in metadata._subscribers:
        changed()


def features(bench: ControllerBench, level: int = LEVEL) -> Features:
    return Features(7, {"metadata.version": level}, bench.node.part.cache.image.features.table)


async def until(holds: Any) -> None:
    """Wait until that is so, for a few seconds."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


def registrations(bench: ControllerBench) -> list[wire.ControllerRegistrationRequest]:
    return [request for what, request in bench.controller.asked if what == "register_controller"]


def _into(bench: ControllerBench, request: wire.ControllerRegistrationRequest) -> None:
    known = ControllerImage(request.controller_id, {}, incarnation_id=request.incarnation_id)
    publish(bench, controllers={**bench.node.part.cache.image.controllers, request.controller_id: known})


def test_an_active_controller_registers_itself_once(tmp_path: Path) -> None:
    """A change of features would be refused for want of it, or the log would fill with registrations."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            bench.controller.registered = lambda request: _into(bench, request)
            publish(bench, features=features(bench, 14))
            await asyncio.sleep(0.05)
            assert registrations(bench) == []
            publish(bench, features=features(bench))
            await until(lambda: registrations(bench))
            publish(bench)
            await asyncio.sleep(0.05)
            (request,) = registrations(bench)
            assert [(each.name, each.host, each.security_protocol) for each in request.listeners] == [
                ("CONTROLLER", "127.0.0.1", 0)
            ]
            ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
            assert ranges["metadata.version"] == (7, 30)
            assert ranges["kraft.version"] == (0, 1)
            assert len(ranges) == 7

    uvloop.run(body())


def test_another_controller_registers_at_the_one_that_leads(tmp_path: Path) -> None:
    """Its ranges would not count, and clients of controllers would not find it."""

    async def body() -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        async with running(tmp_path / "one") as one:
            port = one.node.node.listeners.all[0].port
            voters = f"1@127.0.0.1:{port},2@127.0.0.1:9093"
            two = ControllerBench(tmp_path / "two", {"controller.quorum.voters": voters}, node_id=2)
            await two.node.start()
            try:
                one.controller.registered = lambda request: _into(two, request)
                publish(two, features=features(two))
                await until(lambda: registrations(one))
                assert [each.controller_id for each in registrations(one)] == [2]
                # A process of the same node before this one has left its registration.
                one.controller.asked.clear()
                publish(two, controllers={2: ControllerImage(2, {}, incarnation_id=b"1" * 16)})
                await until(lambda: registrations(one))
            finally:
                await two.node.stop()

    uvloop.run(body())


def test_a_refusal_is_followed_by_another_try(tmp_path: Path) -> None:
    """A controller that has met a change of leaders would stay unknown."""

    async def body() -> None:
        async with running(tmp_path) as bench:
            bench.controller.registered = lambda request: _into(bench, request)
            bench.controller.failure = NotControllerError()
            publish(bench, features=features(bench))
            await asyncio.sleep(0.05)
            assert registrations(bench) == []
            bench.controller.failure = None
            await until(lambda: registrations(bench))

    uvloop.run(body())
