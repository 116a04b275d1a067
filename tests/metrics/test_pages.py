"""Pages of JSON beside the metrics: the way from a path to an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import uvloop

from kbroker.metrics import MetricsServer, Readiness, ReadyState, start_metrics_server
from tests.metrics.http_exchange import get, sources


async def shelf(parts: Sequence[str]) -> tuple[int, Any]:
    """Answers with the parts of the path; `none` is missing, `broken` is a fault."""
    if list(parts) == ["none"]:
        return 404, {"error": "nothing here"}
    if list(parts) == ["broken"]:
        raise RuntimeError("a fault of the page")
    return 200, {"parts": list(parts)}


def test_pages_are_served_once_the_broker_is_ready() -> None:
    """`kbroker logs` would show half of the logs while they are being loaded, or end in a page of Python."""

    async def scenario(server: MetricsServer) -> None:
        status, head, body = await get(server, "/shelf")
        assert status == 503 and "application/json" in head
        assert json.loads(body) == {"error": "the broker is starting: recovering logs, 1 of 2"}
        server.readiness.move(ReadyState.READY)
        for path, parts in (
            ("/shelf", []),
            ("/shelf/", []),
            ("/shelf/a.b-c_d/7", ["a.b-c_d", "7"]),
            ("/shelf/%20x", [" x"]),
        ):
            status, _, body = await get(server, path)
            assert (status, json.loads(body)) == (200, {"parts": parts})
        assert (await get(server, "/shelf/none"))[0] == 404
        assert (await get(server, "/shelf", method="DELETE"))[0] == 405
        assert (await get(server, "/shelf/broken"))[0] == 500
        status, _, body = await get(server, "/shelves")
        assert (status, body) == (
            404,
            b"not found; there are /metrics, /metrics/kafka, /metrics/kafka/raw, /metrics/kbroker, /healthz, "
            b"/shelf and /readyz\n",
        )
        assert (await get(server, "/metrics"))[0] == 200

    async def main() -> None:
        readiness = Readiness()
        readiness.detail = "recovering logs, 1 of 2"
        server = await start_metrics_server("http://127.0.0.1:0", sources(), readiness, pages={"shelf": shelf})
        assert server is not None
        try:
            await asyncio.wait_for(scenario(server), 120)
        finally:
            await server.close()

    uvloop.run(main())
