"""`kbroker doctor`: what is wrong with the settings and the machine, and the command that mends it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from kbroker.cli.checks.cluster_checks import check_cluster
from kbroker.cli.checks.host_checks import (
    RESERVE,
    RUNNING,
    Finding,
    Level,
    check_clock,
    check_contents,
    check_directory,
    check_limits,
    check_listeners,
    check_metrics,
    check_settings,
    check_versions,
    read_mounts,
)
from kbroker.cli.checks.security_checks import check_openness
from kbroker.cli.checks.store_checks import check_store
from kbroker.cli.output import json_option, print_json, print_table
from kbroker.config import BrokerConfig, ConfigError
from kbroker.config.broker import read_settings
from kbroker.config.file_check import what_is_right

_DIRECTORIES = {"log.dirs", "log.dir"}
_WORST_FIRST = (Level.PROBLEM, Level.WARNING, Level.OK)


@click.command("doctor")
@click.argument("properties", metavar="[SERVER.PROPERTIES]", required=False, type=click.Path(dir_okay=False))
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one setting.")
@click.option("--quiet", is_flag=True, help="Show problems and warnings alone.")
@json_option
def command(properties: str | None, overrides: tuple[str, ...], quiet: bool, as_json: bool) -> int:
    """Check settings, directories, ports, limits and the clock, and say what mends what is wrong.

    Reads SERVER.PROPERTIES, the environment and overrides as `kbroker start` does; changes nothing.  Exit status 1 when
    a broker would not start, or would refuse records.
    """
    findings = sorted(examine(properties, overrides), key=lambda each: _WORST_FIRST.index(each.level))
    shown = [each for each in findings if not quiet or each.level is not Level.OK]
    if as_json:
        print_json([{**asdict(each), "level": each.level.value} for each in shown])
    elif shown:
        print_table(
            ("", "WHAT", "FOUND", "MEND"), [(each.level.value, each.subject, each.found, each.mend) for each in shown]
        )
    return 1 if any(each.level is Level.PROBLEM for each in findings) else 0


def examine(properties: str | None, overrides: tuple[str, ...]) -> list[Finding]:
    """All findings.  What a wrong setting is about cannot be looked at; the machine can."""
    try:
        settings, warnings = read_settings(properties, overrides, os.environ)
        config, errors = what_is_right(settings, os.environ, warnings)
    except ConfigError as error:
        config, errors = None, [error]
    wrong = {error.setting.key for error in errors if error.setting is not None}
    findings = [
        Finding(Level.PROBLEM, "settings", str(error), "`kbroker config` shows what each setting allows")
        for error in errors
    ]
    if config is not None:
        findings += [each for each in check_settings(config) if not errors or each.level is not Level.OK]
        findings += _of_settings(config, wrong)
    return [
        *findings,
        *check_limits(),
        *check_clock(),
        *check_versions(),
    ]


def _of_settings(config: BrokerConfig, wrong: Collection[str]) -> Iterator[Finding]:
    """What directories, listeners and cluster are, as far as their settings are right."""
    is_running = False
    if not _DIRECTORIES & set(wrong):
        mounts = read_mounts(Path("/proc/mounts").read_text())
        directories = [
            finding for path in config.log_dirs for finding in check_directory(path, config.get(RESERVE), mounts)
        ]
        if not any(each.level is Level.PROBLEM for each in directories):
            directories += check_contents(config.log_dirs)
        is_running = any(finding.subject == RUNNING for finding in directories)
        yield from directories
        if not config.get("zookeeper.connect") and not config.is_kraft_broker and not config.is_voter:
            yield from check_store(config.log_dirs[0], is_running=is_running)
    if not any("listener" in key for key in wrong):
        yield from check_listeners(config, is_running)
        yield from check_metrics(config, is_running)
        yield from check_openness(config)
        yield from check_cluster(config)
