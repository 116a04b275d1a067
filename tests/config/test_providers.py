"""Values of settings that lie in files, directories and the environment.

Also of `kbroker.config.providers`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.broker import ConfigError
from kbroker.config.file_check import check_file

PACKAGE = "org.apache.kafka.common.config.provider."


def text_of(*lines: str, **classes: str) -> str:
    named = [f"config.providers.{name}.class={PACKAGE}{kind}" for name, kind in classes.items()]
    return "\n".join([f"config.providers={','.join(classes)}", *named, *lines, ""])


def load(folder: Path, text: str, environ: dict[str, str] | None = None) -> BrokerConfig:
    path = folder / "server.properties"
    path.write_text(text)
    return BrokerConfig.load(path, environ=environ or {})


def test_values_come_from_files_directories_and_the_environment(tmp_path: Path) -> None:
    """Passwords would have to stand in server.properties, or `${…}` itself would be the password."""
    (tmp_path / "secrets.properties").write_text("token = s3cret=x\n")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "rack").write_text("r1")
    config = load(
        tmp_path,
        text_of(
            f"kbroker.metrics.bearer.token=${{file:{tmp_path}/secrets.properties:token}}",
            f"broker.rack=x-${{dir:{tmp_path}/credentials:rack}}-${{env:ZONE}}-${{other:y}}",
            file="FileConfigProvider",
            dir="DirectoryConfigProvider",
            env="EnvVarConfigProvider",
        ),
        {"ZONE": "z"},
    )
    assert config.get("kbroker.metrics.bearer.token") == "s3cret=x"
    assert config.get("broker.rack") == "x-r1-z-${other:y}"
    assert not [each for each in config.warnings if "providers" in each]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("broker.rack=${file:/nowhere:x}", "/nowhere cannot be read: No such file"),
        ("broker.rack=${file:FOLDER/s.properties:gone}", "has no gone"),
        ("broker.rack=${dir:FOLDER:../s.properties}", "is no name of a file"),
        ("broker.rack=${env:GONE}", "there is no variable GONE"),
        (
            "config.providers.file.param.allowed.paths=/etc\nbroker.rack=${file:FOLDER/s.properties:a}",
            "not below the all",
        ),
        (
            "config.providers.env.param.allowlist.pattern=KAFKA_.*\nbroker.rack=${env:ZONE}",
            "does not match the allowlist",
        ),
        (
            "config.providers.env.param.allowlist.pattern=[A-Z&&[^Z]]+\nbroker.rack=${env:ZONE}",
            "does not match the allowlist",
        ),
        ("config.providers.env.param.allowlist.pattern=[A-Z", "param.allowlist.pattern: Unclosed character class"),
        ("config.providers.env.param.other=1", "is no parameter of Kafka"),
        ("config.providers.file.class=com.example.Vault", "kbroker runs no Java"),
    ],
)
def test_a_value_that_is_not_to_be_had_ends_the_start(tmp_path: Path, line: str, said: str) -> None:
    """A broker would run with `${…}` as its password."""
    (tmp_path / "s.properties").write_text("a=1\n")
    classes = {"file": "FileConfigProvider", "dir": "DirectoryConfigProvider", "env": "EnvVarConfigProvider"}
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, text_of(line.replace("FOLDER", str(tmp_path)), **classes), {"ZONE": "z"})


def test_paths_below_those_allowed_are_read(tmp_path: Path) -> None:
    """A provider that is confined could not be used at all."""
    (tmp_path / "s.properties").write_text("a=1\n")
    text = text_of(
        f"config.providers.file.param.allowed.paths=/etc,{tmp_path}",
        f"broker.rack=${{file:{tmp_path}/s.properties:a}}",
        file="FileConfigProvider",
    )
    assert load(tmp_path, text).get("broker.rack") == "1"


def test_the_check_of_a_file_asks_the_providers(tmp_path: Path) -> None:
    """`kbroker config check` would call a number wrong that lies elsewhere, or pass one that is not there."""
    (tmp_path / "s.properties").write_text("threads=3\n")
    path = tmp_path / "server.properties"
    for key, is_there in (("threads", True), ("gone", False)):
        line = f"num.io.threads=${{file:{tmp_path}/s.properties:{key}}}"
        path.write_text(text_of(line, file="FileConfigProvider"))
        _, findings = check_file(path)
        assert any(each.stops for each in findings) is not is_there, findings
