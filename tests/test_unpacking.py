"""Archives of the tests are unpacked on every Python, and nothing outside of the folder."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.archives import unpack


def made(path: Path, *names: str, link: str = "") -> Path:
    with tarfile.open(path, "w:xz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, link
            else:
                member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    return path


@pytest.fixture(params=[True, False], ids=["filters", "no filters"])
def _filters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python with tarfile's filters, and one without."""
    if not request.param:
        real = tarfile.TarFile.extractall
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        trusted = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
        monkeypatch.setattr(tarfile.TarFile, "extractall", lambda self, path: real(self, path, **trusted))
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has none")


@pytest.mark.usefixtures("_filters")
def test_an_archive_is_unpacked_with_and_without_filters(tmp_path: Path) -> None:
    """`make test` would fail on Debian 12 as it comes."""
    unpack(made(tmp_path / "a.tar.xz", "d/one", "two"), tmp_path / "out")
    assert (tmp_path / "out" / "d" / "one").read_bytes() == (tmp_path / "out" / "two").read_bytes() == b"x"


@pytest.mark.usefixtures("_filters")
@pytest.mark.parametrize(("name", "link"), [("../out-of-it", ""), ("a", "/etc/passwd")])
def test_nothing_is_written_outside_of_the_folder(tmp_path: Path, name: str, link: str) -> None:
    """An archive that somebody has changed would write where it likes."""
    with pytest.raises((ValueError, tarfile.TarError)):
        unpack(made(tmp_path / "a.tar.xz", name, link=link), tmp_path / "out")
    assert not (tmp_path / "out-of-it").exists() and not (tmp_path / "out" / "a").exists()
