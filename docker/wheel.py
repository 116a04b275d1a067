"""Wheels that install and run where there is no compiler: `make wheel`, or `python docker/wheel.py [x86_64] [aarch64]`.

Each is built of the sdist, in a tree of its own, by zig's C compiler (a package of PyPI), which compiles for either
processor against the symbols of glibc 2.17, on any Linux machine.  auditwheel looks at what each
library asks of the system and names the wheel by it; one that asks for more than manylinux_2_17 allows ends the build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
GLIBC = "2.17"
POLICY = "manylinux_2_17"
PROCESSORS = ("x86_64", "aarch64")


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> None:
    """Run a command; CalledProcessError where it fails."""
    subprocess.run([str(part) for part in command], cwd=cwd, env={**os.environ, **variables}, check=True)


def made_in(directory: Path, pattern: str) -> Path:
    """The one file of that name in a directory."""
    (found,) = directory.glob(pattern)
    return found


def headers(processor: str, scratch: Path) -> str:
    """An option for the compiler, where Debian's own Python has its settings in a folder of the processor's, in which
    zig does not look; those of this one serve the other, which has the same sizes."""
    config = Path(sysconfig.get_config_h_filename())
    own = config.parents[1] / str(sysconfig.get_config_var("MULTIARCH")) / config.parent.name / config.name
    if not own.exists():
        return ""
    folder = scratch / "include" / f"{processor}-linux-gnu" / config.parent.name
    folder.mkdir(parents=True)
    shutil.copy(own, folder)
    return f" -idirafter {scratch / 'include'}"


def environment(processor: str, scratch: Path) -> dict[str, str]:
    """What makes setuptools compile, link and name extensions for a processor."""
    compiler = f"{sys.executable} -m ziglang cc -target {processor}-linux-gnu.{GLIBC} -Qunused-arguments"
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    return {
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared -s",
        "CFLAGS": "-Wno-error -g0" + headers(processor, scratch),
        "_PYTHON_HOST_PLATFORM": f"linux-{processor}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version}-{processor}-linux-gnu.so",
    }


def build(sdist: Path, processor: str, scratch: Path) -> Path:
    """The wheel for a processor, in dist/."""
    tree = scratch / processor
    tree.mkdir(parents=True)
    run("tar", "--no-same-owner", "-xzf", sdist, "-C", tree)
    source = made_in(tree, "kbroker-*")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tree, cwd=source, **environment(processor, scratch))
    wheel = made_in(tree, "*.whl")
    repaired = tree / "repaired"
    run(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "-w", repaired, wheel)
    named = made_in(repaired, "*.whl")
    if f"{POLICY}_{processor}" not in named.name:
        raise SystemExit(f"{named.name} asks for more than {POLICY}")
    return Path(shutil.copy(named, DIST))


def main(processors: list[str]) -> None:
    """Build the wheels that are asked for, all when none is."""
    if unknown := set(processors) - set(PROCESSORS):
        raise SystemExit(f"unknown processor {', '.join(sorted(unknown))}: {' or '.join(PROCESSORS)}")
    if sysconfig.get_platform().split("-")[0] != "linux":
        raise SystemExit("wheels are built on Linux")
    DIST.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kbroker-wheel-") as name:
        scratch = Path(name)
        run(sys.executable, "-m", "build", "--sdist", "--outdir", scratch)
        for processor in processors or PROCESSORS:
            print(build(made_in(scratch, "*.tar.gz"), processor, scratch).relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
