"""The bare server beside kbroker: what it is given and what it says."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import struct

import pytest

from bench import floor, git, parts, raw
from bench.cell import Cell, Load

MB = 1 << 20


def ask(port: int, frames: list[bytes]) -> list[bytes]:
    """The answers to requests of one connection, one after the other, with their length prefixes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client, client.makefile("rb") as answers:
        found = []
        for frame in frames:
            client.sendall(frame)
            prefix = answers.read(4)
            found.append(prefix + answers.read(struct.unpack(">i", prefix)[0]))
        return found


def request(correlation_id: int, size: int) -> bytes:
    return struct.pack(">ihhi", 8 + size, 0, 0, correlation_id) + bytes(size)


def test_each_frame_gets_the_answer_with_its_own_number_and_is_written(tmp_path: pathlib.Path) -> None:
    """The floor would be that of a server which does less than it says."""
    answer = struct.pack(">ii", 4 + 30, 0) + bytes(range(30))
    cell = Cell("one", "", "produce", partitions=1)
    with floor.bare(cell, floor.Exchange(request(0, 100), answer), tmp_path) as server:
        for number, size in enumerate((100, 70_000, MB, 0)):
            assert ask(server.port, [request(number, size)]) == [answer[:4] + struct.pack(">i", number) + answer[8:]]
        assert (tmp_path / "data").stat().st_size == sum(12 + size for size in (100, 70_000, MB, 0))


def test_frames_for_many_partitions_go_to_as_many_files_in_turn(tmp_path: pathlib.Path) -> None:
    """What a broker pays for files that no processor's cache holds would be counted as the broker's own."""
    cell = Cell("spread", "", "produce", partitions=3)
    sizes = (100, MB + 7, 300, 400, 500)
    with floor.bare(cell, floor.Exchange(request(0, 100), struct.pack(">ii", 4, 0)), tmp_path) as server:
        for number, size in enumerate(sizes):
            assert ask(server.port, [request(number, size)]) == [struct.pack(">ii", 4, number)]
        written = [(tmp_path / name).stat().st_size for name in ("data", "data.1", "data.2")]
    assert written == [12 + 100 + 12 + 400, 12 + MB + 7 + 12 + 500, 12 + 300]


def test_no_more_is_written_to_warm_than_a_quarter_of_what_a_cell_may_write(tmp_path: pathlib.Path) -> None:
    """The quicker broker would write more before it is measured, and pay for memory that the other never takes."""
    size, count = 60_000, 400
    cell = Cell("batches", "", "produce", connections=4, partitions=1)
    with floor.bare(cell, floor.Exchange(request(0, size), struct.pack(">ii", 4, 0)), tmp_path) as server:
        load = Load(seconds=100, warm_seconds=100)
        result = raw.run_closed(server, [request(0, size)], cell, load, warm=100, max_requests=count)
    assert count <= result["requests"] <= count + cell.connections
    assert (tmp_path / "data").stat().st_size <= (count * 5 // 4 + 3 * cell.connections) * (12 + size)


@pytest.mark.parametrize("size", [10_000, 3 * MB])
def test_records_come_out_of_a_file_from_front_to_back(tmp_path: pathlib.Path, size: int) -> None:
    """A fetch that is answered from the server's own memory would be no floor."""
    contents = [os.urandom(2 * size + 7), os.urandom(size)]
    paths = tuple(tmp_path / str(number) for number in range(len(contents)))
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    answer = struct.pack(">ii", 4 + 20 + size, 0) + b"h" * 20 + b"x" * size
    with floor.bare(
        Cell("read", "", "fetch"), floor.Exchange(request(0, 50), answer, -1, size, paths), tmp_path
    ) as server:
        found = [ask(server.port, [request(number, 50) for number in range(3)]) for _ in paths]
    for content, answers in zip(contents, found, strict=True):
        pieces = [content[at : at + size] for at in range(0, len(content) - size + 1, size)]
        for number in range(3):
            head = answer[:4] + struct.pack(">i", number) + b"h" * 20
            assert answers[number] == head + pieces[number % len(pieces)]


def test_a_run_has_figures_of_both_sides(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody could tell what of a cell's cost is the machine's."""
    monkeypatch.setattr(raw, "READ_BYTES", 64 * MB)
    path = tmp_path / "floor.json"
    cells = "batch-1m,fetch-16k-16,metadata"
    options = ["--rounds", "1", "--seconds", "1", "--memory", "0", "--json", str(path)]
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


def test_a_machine_without_git_has_a_version_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark, and its tests, would fail on a machine as it comes."""
    monkeypatch.setenv("PATH", "")
    assert git.said("rev-parse", "HEAD") == ""
    assert parts.commit() == "unknown" and parts.history() == []
