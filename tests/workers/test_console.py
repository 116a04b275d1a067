"""What is at `/console/` where workers run."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

import pytest

from kbroker.metrics.readiness import Readiness
from kbroker.supervision.worker_pages import start_pages


@pytest.mark.parametrize("path", ["/console/", "/console/api/overview"])
def test_the_console_says_what_there_is_in_its_place(path: str) -> None:
    """Who follows the documentation of a single broker would meet a page that is not there, without a word."""

    async def said() -> str:
        pages = await start_pages("http://127.0.0.1:0", {}, {}, Readiness())
        assert pages is not None
        try:
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{pages.port}{path}", None, 10)
            assert refused.value.code == 404
            return refused.value.read().decode()
        finally:
            await pages.close()

    assert "kbroker cluster status" in asyncio.run(said())
