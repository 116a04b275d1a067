"""Clusters by name: the file, and which cluster a command talks to.

Also of `kbroker.cli.profile`, `kbroker.cli.profile_option`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker.cli.main import cli, run
from kbroker.cli.profiles import Profile, ProfileError, Profiles, default_path
from tests.broker.client import Client
from tests.broker_process import BrokerProcess
from tests.ports import free_port

WORDS = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="]"), min_size=1, max_size=12)
KEYS = st.from_regex(r"[a-zA-Z][a-zA-Z.]{0,11}", fullmatch=True)
FIELDS = st.tuples(WORDS, st.none() | WORDS, st.dictionaries(KEYS, WORDS, max_size=3))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No profile of the person who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KBROKER_PROFILE", raising=False)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert run(list(arguments)) == status
    captured = capsys.readouterr()
    return captured.out + captured.err


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(WORDS, st.tuples(WORDS, st.none() | WORDS, st.dictionaries(KEYS, WORDS, max_size=3)), max_size=4)
)
def test_profiles_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, wanted: dict[str, tuple[str, str | None, dict[str, str]]]
) -> None:
    """A password with a % or a name in capitals would be another one after it was kept."""
    path = tmp_path_factory.mktemp("profiles") / "kbroker" / "profiles.ini"
    for name, (bootstrap, metrics, values) in wanted.items():
        Profiles(path).put(Profile(name, bootstrap, metrics, values))
    found = Profiles(path)
    assert found.names == sorted(wanted)
    assert {name: found.get(name) for name in wanted} == {name: Profile(name, *each) for name, each in wanted.items()}


def test_the_file_is_its_owners_alone_and_its_faults_are_named(tmp_path: Path) -> None:
    """Others would read the passwords, or a damaged file would end in a traceback."""
    path = default_path()
    assert path == tmp_path / "kbroker" / "profiles.ini"
    Profiles(path).put(Profile("dev", "a:1"))
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ProfileError, match="line break"):
        Profiles(path).put(Profile("dev", "a:1\n[current]"))
    path.write_text("[profile dev]\nnothing")
    with pytest.raises(ProfileError, match=r"profiles\.ini"):
        Profiles(path)
    assert default_path({"XDG_CONFIG_HOME": "relative", "HOME": "/x"}) == Path.home() / ".config/kbroker/profiles.ini"


def test_profiles_are_added_listed_used_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    """There would be no way to keep a cluster but an editor."""
    said(capsys, "profile", "add", "dev", "-b", "h:1,i:2", "-m", "http://h:3", "-X", "sasl.password=p", "-X", "A.b=c")
    assert "--replace" in said(capsys, "profile", "add", "dev", "-b", "h:1", status=1)
    assert "not host:port" in said(capsys, "profile", "add", "other", "-b", "h", status=2)
    said(capsys, "profile", "use", "dev")
    listed = said(capsys, "profile", "list", "--json")
    assert json.loads(listed) == [
        {
            "name": "dev",
            "bootstrap": "h:1,i:2",
            "metrics": "http://h:3",
            "settings": {"sasl.password": "(hidden)", "A.b": "c"},
            "current": True,
        }
    ]
    assert "did you mean dev?" in said(capsys, "profile", "use", "devv", status=1)
    said(capsys, "profile", "remove", "dev")
    assert json.loads(said(capsys, "profile", "list", "--json")) == []
    assert Profiles(default_path()).current is None


def test_the_profile_says_which_cluster_a_command_talks_to(
    module_broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command would go to another cluster than the one that was chosen, or take its settings there."""
    with Client(module_broker.port) as client:
        client.create("here")
    gone = f"127.0.0.1:{free_port()}"
    said(capsys, "profile", "add", "live", "-b", module_broker.bootstrap, "-m", module_broker.metrics_url)
    said(capsys, "profile", "add", "gone", "-b", gone, "-X", "no.such.setting=1")
    for command in (("topics", "list"), ("cluster", "status"), ("logs", "list")):
        said(capsys, *command, "--profile", "live")
    assert gone in said(capsys, "topics", "list", "--profile", "gone", status=1)
    assert "names no metrics listener" in said(capsys, "logs", "list", "--profile", "gone", status=1)
    said(capsys, "profile", "use", "gone")
    assert gone in said(capsys, "cluster", "status", status=1)
    monkeypatch.setenv("KBROKER_PROFILE", "live")
    assert "here" in said(capsys, "topics", "list")
    assert gone in said(capsys, "topics", "list", "--profile", "gone", status=1)
    # An address is another cluster's than that of the environment, and its settings stay at home.
    monkeypatch.setenv("KBROKER_PROFILE", "gone")
    assert "here" in said(capsys, "topics", "list", "-b", module_broker.bootstrap)
    both = ("--profile", "gone", "-b", module_broker.bootstrap)
    assert "no.such.setting" in said(capsys, "topics", "list", *both, status=1)
    monkeypatch.setenv("KBROKER_PROFILE", "liv")
    assert "did you mean live?" in said(capsys, "topics", "list", status=2)
    assert "here" in said(capsys, "topics", "list", "-b", module_broker.bootstrap)


def test_the_shell_completes_profiles_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Tab would do nothing."""
    said(capsys, "profile", "add", "staging", "-b", "h:1")
    for words, expected in (
        ("kbroker topics list --profile st", "staging"),
        ("kbroker to", "topics"),
        ("kbroker topics des", "describe"),
    ):
        variables = {
            "_KBROKER_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        done = CliRunner().invoke(cli, prog_name="kbroker", env=variables, catch_exceptions=False)
        assert expected in [line.partition(",")[2] for line in done.output.splitlines()], (words, done.output)
