"""Coverage-guided fuzzing of the codec: `python -m tests.fuzz.fuzz_codec [SECONDS]`.

An input's first two bytes choose message and version, the rest is decoded, by the codec and by the slow reference of
the tests: both must refuse it or read the same.  What decodes must encode, and come back.  The engine, atheris, sees
which lines of the reference run and so steers towards all kinds of field.  Seeds are the vectors that Kafka wrote.
Where atheris is not installed, they are damaged at random instead.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kbroker._fast.wire.codec import DecodeError, EncodeError
from kbroker.protocol.frames import decode_request_header
from tests.protocol import reference
from tests.protocol.names import all_versions
from tests.protocol.vector_files import RELEASES, load

VERSIONS = [(message_class, version) for message_class, version in all_versions()]
NUMBERS = {pair: number for number, pair in enumerate(VERSIONS)}
HEADER = len(VERSIONS)  # the number that stands for a request's header
MAX_INPUT = 4096


def run_one(data: bytes) -> None:
    """Decodes one input; any exception out of here is a find."""
    if len(data) < 2:
        return
    number = int.from_bytes(data[:2], "big") % (HEADER + 1)
    if number == HEADER:
        with contextlib.suppress(DecodeError, KeyError):
            decode_request_header(data[2:])
        return
    message_class, version = VERSIONS[number]
    program = message_class.program(version)
    expected = refer(message_class, version, data[2:])
    try:
        struct, position = program.decode_from(data, 2)
    except DecodeError as error:
        assert expected is None, f"{message_class.__name__} v{version} is valid, but: {error}"
        return
    assert 2 <= position <= len(data)
    # By text, not by value: a NaN differs from itself.
    found = repr(reference.as_dict(struct))
    assert found == repr(expected), f"{message_class.__name__} v{version}: {found} is {expected}"
    try:
        encoded = program.encode(struct)
    except EncodeError as error:
        raise AssertionError(f"{message_class.__name__} v{version} decodes but does not encode: {error}") from error
    again = program.decode(encoded)
    assert program.encode(again) == encoded, f"{message_class.__name__} v{version} does not come back"


def refer(message_class: Any, version: int, payload: bytes) -> Any:
    try:
        return reference.Reference(message_class.schema, version, payload).message()
    except reference.MalformedError:
        return None


def seeds() -> list[bytes]:
    """One input per vector."""
    return [
        NUMBERS[message_class, version].to_bytes(2, "big") + encoded
        for release in RELEASES
        for message_class, version, encoded, _ in load(release)
    ]


def fuzz_with_atheris(seconds: int) -> None:
    """Never returns: libFuzzer ends the process, with 0 when the time is up without a find."""
    import atheris

    with tempfile.TemporaryDirectory(prefix="kbroker-fuzz-") as corpus:
        for number, seed in enumerate(seeds()):
            (Path(corpus) / f"{number:05}").write_bytes(seed)
        arguments = [sys.argv[0], f"-max_total_time={seconds}", f"-max_len={MAX_INPUT}", "-rss_limit_mb=1024", corpus]
        with atheris.instrument_imports(include=["tests.protocol.reference"]):
            importlib.reload(reference)
        atheris.Setup(arguments, run_one)
        atheris.Fuzz()


def fuzz_at_random(seconds: int) -> None:
    """What is left without atheris: seeds, cut, spliced and with bytes replaced."""
    rng = random.Random()
    corpus = seeds()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(1000):
            damaged = bytearray(rng.choice(corpus))
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            if rng.random() < 0.3:
                del damaged[rng.randrange(2, len(damaged) + 1) :]
            elif rng.random() < 0.3:
                damaged += rng.choice(corpus)
            run_one(bytes(damaged))


def main() -> None:
    text = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FUZZ_SECONDS", "60")
    try:
        import atheris  # noqa: F401
    except ImportError:
        fuzz_at_random(int(text))
        return
    fuzz_with_atheris(int(text))


if __name__ == "__main__":
    main()
