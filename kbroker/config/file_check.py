"""A server.properties judged line by line, without starting anything: what `kbroker config check` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kbroker.config.broker import BrokerConfig, ConfigError, Setting, Source
from kbroker.config.judgement import Verdict, judge
from kbroker.config.properties import PropertiesError, Property, decode_properties, parse_properties
from kbroker.config.providers import PROVIDERS, is_of_a_provider
from kbroker.errors import bare

TWICE = "twice"
DEPRECATED = "deprecated"
#: Wrong settings that are looked for, one after the other.
_MOST_ERRORS = 100


class LineFinding(NamedTuple):
    """What is to be said of one line; `stops`: the broker does not start with it."""

    line: int
    key: str
    value: str
    verdict: str
    why: str
    stops: bool


def check_file(path: Path) -> tuple[int, list[LineFinding]]:
    """(how many settings there are, the findings in the file's order).  ConfigError where it cannot be read."""
    try:
        properties = list(parse_properties(decode_properties(path.read_bytes())))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except PropertiesError as error:
        raise ConfigError(f"{path}: {error}") from None
    lines: dict[str, Property] = {}
    findings: list[LineFinding] = []
    texts = {each.key: each.value for each in properties}
    for each in properties:
        if not is_of_a_provider(each.key):
            findings += _of_line(each, lines.get(each.key), texts)
        lines[each.key] = each
    valid = {
        key: each
        for key, each in lines.items()
        if ("${" in each.value and PROVIDERS in texts) or not judge(key, each.value, texts).verdict.stops
    }
    findings += _together(valid)
    return len(properties), sorted(findings, key=lambda finding: finding.line)


def _of_line(each: Property, before: Property | None, texts: Mapping[str, str]) -> Iterator[LineFinding]:
    judged = judge(each.key, each.value, texts)
    if "${" in each.value and PROVIDERS in texts:
        return  # The value lies elsewhere; `_together` asks for it.
    value = "[hidden]" if judged.row is not None and judged.row.sensitive else each.value
    if before is not None:
        why = f"is set on line {before.line} too: the last one counts"
        yield LineFinding(each.line, each.key, value, TWICE, why, False)
    if judged.verdict is not Verdict.FINE:
        yield LineFinding(each.line, each.key, value, judged.verdict, judged.why, judged.verdict.stops)
    if judged.deprecated:
        yield LineFinding(each.line, each.key, value, DEPRECATED, f"is deprecated: {judged.deprecated}", False)


def _together(lines: dict[str, Property]) -> Iterator[LineFinding]:
    """Settings that are right by themselves and not with the others."""
    settings = [Setting(key, each.value, Source.FILE, f"line {each.line}") for key, each in lines.items()]
    for error in what_is_right(settings, {})[1]:
        wrong = lines.get(error.setting.key) if error.setting is not None else None
        line, key, value = (0, "", "") if wrong is None else wrong
        yield LineFinding(line, key, value, Verdict.INVALID, str(error), True)


def what_is_right(
    settings: Sequence[Setting], environ: Mapping[str, str], warnings: Sequence[str] = ()
) -> tuple[BrokerConfig | None, list[ConfigError]]:
    """The settings without those that are wrong, by themselves or with the others, and an error for each of these.

    None where an error is of no setting that could be left out.
    """
    left = {each.key: each for each in settings}
    errors: list[ConfigError] = []
    while len(errors) < _MOST_ERRORS:
        try:
            return BrokerConfig(list(left.values()), environ, warnings), errors
        except ConfigError as error:
            errors.append(bare(error))
            if error.setting is None or left.pop(error.setting.key, None) is None:
                break
    return None, errors
