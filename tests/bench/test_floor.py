"""The bare server beside kbroker: what it is given and what it says."""

from __future__ import annotations

import json
import pathlib
import socket
import struct

import pytest

from bench import floor, raw
from bench.cell import Cell

MB = 1 << 20


def ask(port: int, frames: list[bytes]) -> list[bytes]:
    """Send all at once, then take as many answers, with their length prefixes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client, client.makefile("rb") as answers:
        client.sendall(b"".join(frames))
        found = []
        for _ in frames:
            prefix = answers.read(4)
            found.append(prefix + answers.read(struct.unpack(">i", prefix)[0]))
        return found


def request(correlation_id: int, size: int) -> bytes:
    return struct.pack(">ihhi", 8 + size, 0, 0, correlation_id) + bytes(size)


def test_each_frame_gets_the_answer_with_its_own_number_and_is_written(tmp_path: pathlib.Path) -> None:
    """The floor would be that of a server which does less than it says."""
    answer = struct.pack(">ii", 4 + 30, 0) + bytes(range(30))
    cell = Cell("one", "", "produce")
    with floor.bare(cell, floor.Exchange(request(0, 100), answer), tmp_path) as server:
        for number, size in enumerate((100, 70_000, MB, 0)):
            assert ask(server.port, [request(number, size)]) == [answer[:4] + struct.pack(">i", number) + answer[8:]]
        assert (tmp_path / "data").stat().st_size == sum(12 + size for size in (100, 70_000, MB, 0))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("size", [10_000, 3 * MB])
def test_records_come_out_of_the_file(tmp_path: pathlib.Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch that is answered from the server's own memory would be no floor."""
    monkeypatch.setattr(floor, "READ_BYTES", 8 * MB)
    answer = struct.pack(">ii", 4 + 20 + size, 0) + b"h" * 20 + b"x" * size
    with floor.bare(Cell("read", "", "fetch"), floor.Exchange(request(0, 50), answer, -1, size), tmp_path) as server:
        for number in range(5):
            assert ask(server.port, [request(number, 50)]) == [
                answer[:4] + struct.pack(">i", number) + b"h" * 20 + bytes(size)
            ]


def test_a_run_has_figures_of_both_sides(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody could tell what of a cell's cost is the machine's."""
    monkeypatch.setattr(raw, "READ_BYTES", 16 * MB)
    monkeypatch.setattr(floor, "READ_BYTES", 16 * MB)
    path = tmp_path / "floor.json"
    cells = "one-50,batch-1m,fetch-16k-16,fetch-1m-16,metadata,api-versions"
    options = ["--rounds", "1", "--seconds", "0.3", "--memory", "0", "--json", str(path)]
    assert floor.main(["--cells", cells, *options]) == 0
    found = json.loads(path.read_text())
    assert list(found) == cells.split(",")
    for sides in found.values():
        assert all(sides[side][name] > 0 for side in ("kbroker", "bare") for name in ("requests_per_s", "p50_us"))
    printed = capsys.readouterr().out
    assert all(f"\n{name} " in printed for name in found)


def test_cells_that_it_cannot_stand_for_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A figure of another workload would stand beside the cell's."""
    with pytest.raises(SystemExit):
        floor.main(["--cells", "e2e-1000,fetch-1m-16-cold,one-1"])
    assert "no bare server can stand for e2e-1000, fetch-1m-16-cold" in capsys.readouterr().err
