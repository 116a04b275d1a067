"""Builds the load generator and the preload library with the C compiler, when their sources are newer."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).parent
SOURCES = HERE / "native"
BUILD = HERE / "build"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra")


def load_generator() -> pathlib.Path:
    """The load generator's program."""
    names = ("main", "wire", "closed", "end_to_end", "storm")
    return _build(BUILD / "loadgen", [SOURCES / f"{name}.c" for name in names], ())


def bare_server() -> pathlib.Path:
    """The server that does what a request needs of the system and nothing else."""
    return _build(BUILD / "bare", [SOURCES / "bare.c", SOURCES / "wire.c"], ())


def tls_load_generator() -> pathlib.Path:
    """The load generator over TLS; needs OpenSSL's headers."""
    return _build(BUILD / "tls", [SOURCES / "tls.c"], ("-pthread",), ("-lssl", "-lcrypto"))


def librdkafka_client() -> pathlib.Path:
    """The program that produces and consumes by librdkafka."""
    names = ("librdkafka_client", "wire")
    sources = [SOURCES / f"{name}.c" for name in names]
    return _build(BUILD / "librdkafka_client", sources, ("-pthread",), ("-ldl",))


def congestion_preload() -> pathlib.Path:
    """The library that sets TCP congestion control in a broker that can't do it itself."""
    return _build(BUILD / "congestion.so", [SOURCES / "congestion.c"], ("-shared", "-fPIC"))


def _build(
    target: pathlib.Path, sources: list[pathlib.Path], flags: tuple[str, ...], libraries: tuple[str, ...] = ()
) -> pathlib.Path:
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if target.exists() and target.stat().st_mtime >= newest:
        return target
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the load generator needs a C compiler (cc or gcc)")
    BUILD.mkdir(exist_ok=True)
    # Another run may use or build the same program now.
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    subprocess.run([compiler, *FLAGS, *flags, "-o", str(fresh), *map(str, sources), *libraries], check=True)
    fresh.rename(target)
    return target
