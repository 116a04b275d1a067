"""What SQLite leaves out of a write-ahead log, without a word: found before SQLite opens the database.

After a crash SQLite reads a WAL up to the first frame that is not right, back to the last commit before it, and takes
the rest for what the crash cut short.  One flipped bit looks the same, and costs all transactions behind it, although
they were fsynced and acknowledged.  Here the file is read by the same rules (https://www.sqlite.org/walformat.html),
and then what lies behind that place is looked at, too:

    nothing, a part of a frame, frames without a commit,     a crash: nothing is said
    frames of an earlier time (other salts)
    a commit of this time, behind it no frame of this time   `is_certain` is False: the machine may have lost its power
                                                             while the last transaction was written, or it is damage
    more frames of this time                                 damage: a transaction begins when the one before is durable
    frames behind a header that is not right                 damage: the header is durable before the first frame

A checkpoint may have copied ignored frames to the database before the crash, as it does with each 1,000th frame.
`Copied` says how far: PARTLY and WHOLLY leave no state that SQLite could make of both files, as the older frames that
it takes would cover newer pages.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

WAL_SUFFIX = "-wal"
HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
_MAGIC = 0x377F0682
"""With its lowest bit set where checksums are of big-endian words."""
_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")
_DATABASE_PAGE_SIZE = struct.Struct(">H")
_DATABASE_PAGE_SIZE_AT = 16
_VERSION = 3_007_000
_MASK = 0xFFFFFFFF
SALT, CHECKSUM = "salt", "checksum"

Sums = tuple[int, int]


class Copied(Enum):
    """How much of a WAL a checkpoint has copied to the database, ignored frames included."""

    NOT = "none"
    PARTLY = "a part"
    WHOLLY = "all"


@dataclass(frozen=True, slots=True)
class IgnoredEnd:
    """What SQLite does not read of a WAL.  `transactions` counts the commits among the `frames`."""

    reason: str
    frames: int
    transactions: int
    is_certain: bool
    copied: Copied


class _Frame(NamedTuple):
    """A frame of this time, with the place of its page in the WAL.  `is_sound`: its checksum is right, as far as the
    frame before tells."""

    number: int
    page: int
    at: int
    is_commit: bool
    is_sound: bool


@dataclass(frozen=True, slots=True)
class _Header:
    """How the frames are to be read; the sums that the first one goes on with.  `fault`: of the header itself."""

    page_size: int
    order: str
    salts: Sums
    seeds: frozenset[Sums]
    fault: str


def ignored_end(database: Path) -> IgnoredEnd | None:
    """What SQLite will leave out of the WAL of this database when it opens it; None where that is no damage."""
    try:
        data = memoryview(database.with_name(database.name + WAL_SUFFIX).read_bytes())
    except FileNotFoundError:
        return None
    header = _read_header(data, database) if len(data) > HEADER_BYTES and database.exists() else None
    if header is None:
        return None
    frames, fault_at, fault = _read_frames(data, header)
    first = 1 if header.fault else fault_at
    taken = max((each.number for each in frames if each.number < first and each.is_commit), default=0)
    ignored = [each for each in frames if each.number > taken]
    commits = [each.number for each in ignored if each.is_commit]
    if not commits:
        return None
    reason = header.fault
    if not reason:
        total = (len(data) - HEADER_BYTES) // (FRAME_HEADER_BYTES + header.page_size)
        reason = f"frame {fault_at} of {total} has a wrong {fault}"
    is_certain = bool(header.fault) or fault == SALT or ignored[-1].number > commits[0]
    copied = _copied(database, data, header, frames, taken)
    return IgnoredEnd(reason, len(ignored), len(commits), is_certain, copied)


def _read_header(data: memoryview, database: Path) -> _Header | None:
    """None where SQLite refuses the file itself, or there is no frame that a header could be missing for."""
    magic, version, page_size, _, *rest = _HEADER.unpack_from(data)
    salts, sums = (rest[0], rest[1]), (rest[2], rest[3])
    order = ">" if magic & 1 else "<"
    if magic & ~1 == _MAGIC and _is_page_size(page_size) and _checksum(data[:24], order, (0, 0)) == sums:
        # SQLite says that it cannot open a WAL of another version.
        return _Header(page_size, order, salts, frozenset((sums,)), "") if version == _VERSION else None
    page_size = _page_size_of(database) or page_size
    if not _is_page_size(page_size) or len(data) < HEADER_BYTES + FRAME_HEADER_BYTES + page_size:
        return None
    # What the header says may be wrong in any place: the first frame has the salts, too.
    order = "<" if sys.byteorder == "little" else ">"
    page, _, *rest = _FRAME_HEADER.unpack_from(data, HEADER_BYTES)
    seeds = frozenset((sums, _checksum(data[:24], order, (0, 0))))
    return _Header(page_size, order, (rest[0], rest[1]), seeds, "its header is damaged") if page else None


def _is_page_size(number: int) -> bool:
    return 512 <= number <= 65536 and not number & (number - 1)


def _page_size_of(database: Path) -> int:
    """What the database says; 0 where it is too short to say it."""
    with database.open("rb") as file:
        head = file.read(_DATABASE_PAGE_SIZE_AT + _DATABASE_PAGE_SIZE.size)
    if len(head) < _DATABASE_PAGE_SIZE_AT + _DATABASE_PAGE_SIZE.size:
        return 0
    (size,) = _DATABASE_PAGE_SIZE.unpack_from(head, _DATABASE_PAGE_SIZE_AT)
    return 65536 if size == 1 else int(size)


def _read_frames(data: memoryview, header: _Header) -> tuple[list[_Frame], int, str]:
    """All frames of this time; the number of the one at which SQLite ends, from 1, and what is wrong there.

    Behind a frame that is not right, the next one is judged by what that one says that it sums up to, and by what it
    does sum up to: damage leaves one of them right.
    """
    frames: list[_Frame] = []
    fault_at, fault = 0, ""
    seeds = header.seeds
    length = FRAME_HEADER_BYTES + header.page_size
    total = (len(data) - HEADER_BYTES) // length
    for number in range(1, total + 1):
        at = HEADER_BYTES + (number - 1) * length
        page, size, *rest = _FRAME_HEADER.unpack_from(data, at)
        salts, sums = (rest[0], rest[1]), (rest[2], rest[3])
        has_salts = salts == header.salts
        if fault_at and not has_salts:
            continue  # Of an earlier time, as most of a WAL that began again: it needs no sum.
        image = data[at + FRAME_HEADER_BYTES : at + length]
        found = _sums(data[at : at + 8], image, header.order, seeds)
        is_sound = sums in found and page > 0
        if not fault_at and not (is_sound and has_salts):
            # No sum covers the salts: with a right sum, a frame is of this time with any salts.
            fault_at, fault = number, SALT if is_sound else CHECKSUM
        if is_sound or has_salts:
            # The mark of a commit may itself be what is damaged.
            is_commit = size > 0 and (is_sound or sums not in _sums(data[at : at + 4], image, header.order, seeds))
            frames.append(_Frame(number, page, at + FRAME_HEADER_BYTES, is_commit, is_sound))
        seeds = frozenset((sums,)) if is_sound or len(found) > 1 else found | {sums}
    return frames, fault_at or total + 1, fault


def _sums(head: memoryview, image: memoryview, order: str, seeds: frozenset[Sums]) -> frozenset[Sums]:
    """What a frame sums up to: the page's number, the mark of a commit (0 where `head` ends before it), the page."""
    summed = bytes(head).ljust(8, b"\0") + bytes(image)
    return frozenset(_checksum(summed, order, seed) for seed in seeds)


def _checksum(data: bytes | memoryview, order: str, sums: Sums) -> Sums:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second


def _copied(database: Path, data: memoryview, header: _Header, frames: list[_Frame], taken: int) -> Copied:
    """How far a checkpoint came, which copies the newest frame of each page in the order of pages."""
    newest = {each.page: each for each in frames}
    held, ignored = 0, 0
    with database.open("rb") as file:
        sound = [newest[page] for page in sorted(newest) if newest[page].is_sound]
        for frame in sound:
            file.seek((frame.page - 1) * header.page_size)
            if file.read(header.page_size) != data[frame.at : frame.at + header.page_size]:
                break
            held += 1
            ignored += frame.number > taken
    if not ignored:
        return Copied.NOT
    return Copied.WHOLLY if held == len(sound) else Copied.PARTLY
