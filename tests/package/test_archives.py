"""What sdist and wheel hold: all that a user needs, and nothing else."""

from __future__ import annotations

import re

from tests.package.built_archives import tracked

# Of the checkout alone: they say how it is checked and what git leaves out.
OF_THE_CHECKOUT = re.compile(r"^\.ci/|(^|/)\.gitignore$")
# What the build adds.
OF_THE_SDIST = re.compile(r"^(PKG-INFO|setup\.cfg|kbroker\.egg-info/.*|kbroker/commit\.txt)$")
# What of the package is there for users: modules and their types, data, and no sources of extensions.
OF_THE_WHEEL = re.compile(r"^kbroker/.*(\.py|\.pyi|py\.typed|\.toml|\.html|/static/[^/]+)$")


def test_the_sdist_holds_what_git_has(sdist: list[str]) -> None:
    """A file without which nothing builds or passes would be left out, or gigabytes of a working tree shipped."""
    expected = {name for name in tracked() if not OF_THE_CHECKOUT.search(name)}
    held = {name for name in sdist if not OF_THE_SDIST.search(name)}
    assert {"left out": expected - held, "shipped": held - expected} == {"left out": set(), "shipped": set()}


def test_the_wheel_holds_modules_extensions_and_their_data(wheel: list[str]) -> None:
    """An extension, a type stub or a template would be missing where it is installed; sources, tests would be there."""
    modules = {name for name in tracked() if OF_THE_WHEEL.search(name)}
    extensions = {name.removesuffix(".pyx") for name in tracked() if re.match(r"kbroker/.*\.pyx$", name)}
    built = [name for name in wheel if name.endswith(".so")]
    assert sorted(name.partition(".")[0] for name in built) == sorted(extensions)
    held = {name for name in wheel if name not in built and ".dist-info/" not in name} - {"kbroker/commit.txt"}
    assert {"left out": modules - held, "shipped": held - modules} == {"left out": set(), "shipped": set()}
    described = {name.partition(".dist-info/")[2] for name in wheel if ".dist-info/" in name}
    assert described == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
