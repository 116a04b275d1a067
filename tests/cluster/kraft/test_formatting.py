"""What `kbroker format` writes for controllers and refuses: the files and words of Kafka 4.3.1's storage tool, of which
`formatted` has some.  Also of `kbroker.cluster.kraft.bootstrap`, `kbroker.cluster.kraft.formatting`,
`kbroker.config.node_settings`, `kbroker.cli.storage.format_node`, `kbroker.cli.storage.format_options`."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.main import run
from kbroker.cluster.kraft.batches import whole_batches
from kbroker.cluster.kraft.bootstrap import (
    BOOTSTRAP_FILE,
    FIRST_VOTERS_FILE,
    BootstrapError,
    bootstrap_checkpoint,
    bootstrap_records,
    default_bootstrap_records,
    feature_records,
    first_records,
    initial_voters_checkpoint,
)
from kbroker.cluster.kraft.formatting import FormatError, parse_initial_controllers
from kbroker.cluster.kraft.snapshots import snapshot_batches
from kbroker.cluster.raft.voter_set import DYNAMIC, VoterHistory, VoterSet
from kbroker.metadata.features import KRAFT_VERSION, METADATA_VERSION
from kbroker.metadata.local_store import FILE_NAME
from kbroker.metadata.release_levels import default_levels, first_levels
from kbroker.schemas import wire
from kbroker.storage.directories.log_dirs import CLUSTER_METADATA_DIRECTORY, decode_meta_properties
from kbroker.storage.files.filesystem import SYSTEM_FILES
from kbroker.types import uuid_from_text
from tests.cluster.kraft.vectors import bytes_of

FORMATTED = Path(__file__).parent / "formatted"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
IDS = [f"0dHR0dHR0dHR0dHR0dELu{letter}" for letter in "Qgw"]
CONTROLLERS = f"3001@127.0.0.1:9093:{IDS[0]},3002@127.0.0.1:9094:{IDS[1]},3003@[::1]:9095:{IDS[2]}"
SALT = 'salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Y3Yz"'
USERS = (
    f"SCRAM-SHA-256=[name=alice,password=alice-secret,{SALT},iterations=4096]",
    f'SCRAM-SHA-512=[name=bob,iterations=8192,{SALT},saltedpassword="mT0yyUUxnlJaC99HXgRTSYlbuqa4FSGtJCJfTMvjYCE="]',
)
TIME = 1_795_904_010_155
Format = Callable[..., int]


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Format:
    """`kbroker format` of a node whose data are in `a` and `b`; its exit status."""

    def ran(*words: str, cluster_id: str | None = CLUSTER_ID, **settings: str) -> int:
        default = {
            "process.roles": "controller",
            "node.id": "3001",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "listeners": "CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        }
        given = {key.replace("_", "."): text for key, text in settings.items()}
        path = tmp_path / "node.properties"
        path.write_text("".join(f"{key}={text}\n" for key, text in {**default, **given}.items() if text))
        where = [] if cluster_id is None else ["-t", cluster_id]
        return run(["format", *where, str(path), *words])

    return ran


def without_times(data: bytes) -> list[tuple[object, ...]]:
    """The batches of a file with all that does not depend on when it was written."""
    found = []
    for batch in whole_batches(data, "a file"):
        raw = bytearray(batch.data)
        raw[17:21] = bytes(4)  # The checksum.
        raw[27:43] = bytes(16)  # The first and the last timestamp.
        found.append((batch.base_offset, bytes(raw)))
    return found


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def directory_id(folder: Path) -> bytes:
    path = folder / "meta.properties"
    return decode_meta_properties(path.read_bytes(), str(path)).directory_id


def voters_in(folder: Path) -> VoterSet:
    """Those of the first snapshot."""
    history = VoterHistory(VoterSet())
    path = folder / CLUSTER_METADATA_DIRECTORY / FIRST_VOTERS_FILE
    history.begin(snapshot_batches(path.read_bytes(), str(path)))
    assert history.kraft_version == DYNAMIC
    return history.last


# The files


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ("bootstrap-4.3", ()),
        ("bootstrap-4.3", ("-r", "4.3.1")),
        ("bootstrap-3.3", ("-r", "3.3")),
        ("bootstrap-3.9", ("--release-version", "3.9")),
        ("bootstrap-4.0", ("-f", "metadata.version=25")),
        ("bootstrap-4.1-IV1", ("-r", "4.1-IV1")),
        ("bootstrap-4.2-IV0", ("-r", "4.2-IV0")),
        ("bootstrap-4.2", ("-r", "4.2")),
        ("bootstrap-features", ("--feature", "group.version=0", "--feature", "transaction.version=1")),
        ("bootstrap-scram", ("-S", USERS[0], "--add-scram", USERS[1])),
    ],
)
def test_the_first_records_are_kafkas(vector: str, words: tuple[str, ...], node: Format, tmp_path: Path) -> None:
    """A cluster would begin with other features, or without its users: no client could log in to add them."""
    assert node("--standalone", *words) == 0
    wanted = bytes_of(FORMATTED / f"{vector}.hex")
    for name in ("a", "b"):
        assert without_times((tmp_path / name / BOOTSTRAP_FILE).read_bytes()) == without_times(wanted)


def test_initial_controllers_have_the_files_of_kafkas(node: Format, tmp_path: Path) -> None:
    """Controllers of both kinds in one quorum would each know other voters, and elect two leaders."""
    assert node("--initial-controllers", CONTROLLERS) == 0
    log = f"a/{CLUSTER_METADATA_DIRECTORY}/{FIRST_VOTERS_FILE}"
    assert files_in(tmp_path) - {"node.properties"} == {
        *(f"{name}/{file}" for name in "ab" for file in (BOOTSTRAP_FILE, "meta.properties")),
        log,
    }
    wanted, made = bytes_of(FORMATTED / "voters.hex"), (tmp_path / log).read_bytes()
    at = 73  # Of the last record's time in the header.
    assert made[:11] == wanted[:11]
    assert [(offset, raw[:at] + raw[at + 8 :] if not offset else raw) for offset, raw in without_times(made)] == [
        (offset, raw[:at] + raw[at + 8 :] if not offset else raw) for offset, raw in without_times(wanted)
    ]
    stamp = re.compile(rb"^#[A-Z].*$", re.MULTILINE)
    assert stamp.sub(b"", (tmp_path / "a" / "meta.properties").read_bytes()) == stamp.sub(
        b"", (FORMATTED / "meta.properties").read_bytes()
    )
    assert directory_id(tmp_path / "a") != directory_id(tmp_path / "b")


def test_a_controller_alone_is_its_own_voter(node: Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would wait for ever for a voter with another directory or at another address."""
    more = {"listeners": "PLAINTEXT://:9092,controller://:9093", "process.roles": "broker,controller"}
    advertised = {"advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://here:9193"}
    elsewhere = {"metadata.log.dir": str(tmp_path / "m")}
    assert node("-s", "--json", cluster_id=None, **more, **elsewhere) == 0
    found = json.loads(capsys.readouterr().out)
    (voter,) = voters_in(tmp_path / "m").by_id.values()
    assert (voter.key.node_id, voter.key.directory_id) == (3001, directory_id(tmp_path / "m"))
    assert {name: (at.host, at.port) for name, at in voter.endpoints.items()} == {"CONTROLLER": ("localhost", 9093)}
    assert [(row["path"], row["kind"], uuid_from_text(row["directory_id"])) for row in found["directories"]] == [
        (str(tmp_path / name), kind, directory_id(tmp_path / name))
        for name, kind in (("a", "data directory"), ("b", "data directory"), ("m", "dynamic metadata voter directory"))
    ]
    assert (found["release"], found["features"][METADATA_VERSION], found["features"][KRAFT_VERSION]) == (
        "4.3-IV0",
        30,
        1,
    )
    shutil.rmtree(tmp_path / "m")
    assert node("-s", "-g", cluster_id=None, **more, **elsewhere, **advertised) == 0
    (voter,) = voters_in(tmp_path / "m").by_id.values()
    assert voter.endpoints["CONTROLLER"] == ("here", 9193)
    assert not (tmp_path / "a" / FILE_NAME).exists()


@pytest.mark.parametrize(
    ("settings", "words", "kind"),
    [
        ({}, ("--no-initial-controllers",), "metadata directory"),
        (
            {"controller.quorum.voters": "3001@127.0.0.1:9093,3002@127.0.0.1:9094"},
            (),
            "metadata directory",
        ),
        ({"node.id": "3009"}, ("-I", CONTROLLERS), "dynamic metadata directory"),
        (
            {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092", "node.id": "1"},
            ("-N",),
            "metadata directory",
        ),
    ],
)
def test_who_is_no_first_voter_has_voters_only_where_they_are_given(
    settings: dict[str, str],
    words: tuple[str, ...],
    kind: str,
    node: Format,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A controller that joins a cluster would believe to be its voter, and elect itself."""
    assert node(*words, "--json", **settings) == 0
    assert json.loads(capsys.readouterr().out)["directories"][0]["kind"] == kind
    assert (tmp_path / "b" / BOOTSTRAP_FILE).exists()
    if kind == "metadata directory":
        assert not (tmp_path / "a" / CLUSTER_METADATA_DIRECTORY).exists()
    else:
        assert sorted(voters_in(tmp_path / "a").by_id) == [3001, 3002, 3003]


def test_a_broker_alone_is_formatted_as_ever(node: Format, tmp_path: Path) -> None:
    """Its directories would have files of a quorum, of which it is no part."""
    assert node(process_roles="broker", listeners="PLAINTEXT://127.0.0.1:9092", node_id="1") == 0
    assert files_in(tmp_path / "a") == {"meta.properties"}


def test_users_of_a_node_that_is_its_whole_quorum_are_there_at_its_start(node: Format, tmp_path: Path) -> None:
    """Nobody could log in to it."""
    settings = {
        "process.roles": "broker,controller",
        "controller.quorum.voters": "3001@127.0.0.1:9093",
        "controller.quorum.bootstrap.servers": "",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    }
    assert node("-S", USERS[0], **settings) == 0
    assert "UserScramCredentialRecord" in [each.name for each in first_records(SYSTEM_FILES, str(tmp_path / "a"))]
    assert not (tmp_path / "a" / FILE_NAME).exists()


def test_formatted_directories_stay_as_they_are(
    node: Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A voter that is formatted again would forget what it has promised, under its old name."""
    assert node("-s") == 0
    before = {name: (tmp_path / "a" / name).read_bytes() for name in files_in(tmp_path / "a")}
    assert node("-s") == 1
    assert (
        f"Log directory {tmp_path}/a is already formatted. Use --ignore-formatted to ignore this directory and format "
        "the others."
    ) in capsys.readouterr().err
    shutil.rmtree(tmp_path / "b")
    assert node("-s", "-g", "-r", "4.0") == 0
    assert {name: (tmp_path / "a" / name).read_bytes() for name in files_in(tmp_path / "a")} == before
    assert "left as it was" in capsys.readouterr().out
    assert without_times((tmp_path / "b" / BOOTSTRAP_FILE).read_bytes()) == without_times(
        bytes_of(FORMATTED / "bootstrap-4.0.hex")
    )
    assert node("-s", "-g", cluster_id="AAU3OEVBNTcwNTJENDM2Qg") == 1
    assert "belongs to cluster" in capsys.readouterr().err


def test_a_metadata_log_without_its_identity_is_not_taken(
    node: Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A voter under a new name would have records that were not acknowledged under it."""
    log = tmp_path / "a" / CLUSTER_METADATA_DIRECTORY
    log.mkdir(parents=True)
    (log / f"{0:020}.log").write_bytes(b"x")
    assert node("-s") == 1
    assert "no meta.properties says whose" in capsys.readouterr().err
    assert not (tmp_path / "b" / "meta.properties").exists()


# What is refused

NOT_SET = (
    "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
    "--standalone, --initial-controllers, or --no-initial-controllers."
)
NOT_BOTH = (
    "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. If "
    "you want to use dynamic quorum, please remove controller.quorum.voters and specify "
    "controller.quorum.bootstrap.servers instead."
)
STATIC = {"controller.quorum.voters": "3001@127.0.0.1:9093"}


@pytest.mark.parametrize(
    ("words", "settings", "why"),
    [
        ("", {}, NOT_SET),
        ("", {"process.roles": "broker,controller", "listeners": "PLAINTEXT://:1,CONTROLLER://:2"}, NOT_SET),
        ("-s", STATIC, NOT_BOTH),
        (f"-I {CONTROLLERS}", STATIC, NOT_BOTH),
        ("-s", {"process.roles": "broker"}, "You can only use --standalone on a controller."),
        ("-s -N", {}, "argument --no-initial-controllers/-N: not allowed with argument --standalone/-s"),
        (
            f"-N -I {CONTROLLERS}",
            {},
            "argument --initial-controllers/-I: not allowed with argument --no-initial-controllers/-N",
        ),
        ("-s", {"process.roles": ""}, "process.roles is not set"),
        (
            "-s",
            {"controller.quorum.bootstrap.servers": ""},
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers.",
        ),
        (
            "",
            {"controller.quorum.voters": "1@a:1"},
            "If process.roles contains the 'controller' role, the node id 3001 must be included in the set of voters "
            "controller.quorum.voters=[1]",
        ),
        (
            "",
            {"controller.quorum.voters": "a:1"},
            "Each entry should be in the form `{id}@{host}:{port}`.",
        ),
        (
            "-s",
            {"controller.listener.names": "", "listeners": "PLAINTEXT://:9093"},
            'Missing required configuration "controller.listener.names" which has no default value.',
        ),
        (
            "-s",
            {"controller.listener.names": "OTHER", "listeners": "PLAINTEXT://:9093"},
            "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when "
            "running the KRaft controller role",
        ),
        (
            "-s -f foo.version=1",
            {},
            "Unsupported feature: foo.version. Supported features are: eligible.leader.replicas.version, "
            "group.version, kraft.version, share.version, streams.version, transaction.version",
        ),
        ("-s -f group.version=7", {}, "No feature:group.version with feature level 7"),
        ("-s -f kraft.version=2", {}, "No feature:kraft.version with feature level 2"),
        (
            "-s -r 3.9 -f eligible.leader.replicas.version=1",
            {},
            "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
        ),
        (
            "-s -r 4.0 -f metadata.version=25",
            {},
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity.",
        ),
        ("-s -f metadata.version=31", {}, "metadata.version 4.4-IV0 is not yet stable."),
        (
            "-s -f metadata.version=99",
            {},
            "No MetadataVersion with feature level 99. Valid feature levels are from 7 to 31.",
        ),
        ("-s -f x", {}, "Can't parse feature=level string x: equals sign not found."),
        ("-s -f x=y", {}, "Can't parse feature=level string x=y: unable to parse y as a short."),
        (
            "-s -f kraft.version=0",
            {},
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone, "
            "--initial-controllers, or --no-initial-controllers is used.",
        ),
        ("-f kraft.version=1", STATIC, "Cannot set kraft.version to 1 unless controller.quorum.voters is empty"),
        ("-s -r 5.0", {}, "Unknown metadata.version '5.0'. Supported metadata.version are: 3.3-IV3, 3.4-IV0, 3.5-IV0"),
        ("-s -r 4.4", {}, "4.2-IV0, 4.2-IV1, 4.3-IV0"),
        (
            f"-s -r 3.4 -S {USERS[0]}",
            {},
            "SCRAM is only supported in metadata.version 3.5-IV2 or later.",
        ),
        ("-I 3001@a:1:AAAAAAAAAAAAAAAAAAAAAA", {}, "is reserved"),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(
    words: str,
    settings: dict[str, str],
    why: str,
    node: Format,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A quorum would begin that was not meant, and that no later setting changes."""
    assert node(*words.split(), **settings) != 0
    assert why in capsys.readouterr().err
    assert not list(tmp_path.rglob("meta.properties"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "No voters given."),
        (",", "No voters given."),
        ("x", "No @ found in dynamic voter string."),
        ("@h:1:x", "Invalid @ at beginning of dynamic voter string."),
        ("a@h:1:x", "Failed to parse node id in dynamic voter string."),
        ("-1@h:1:x", "Invalid negative node id -1 in dynamic voter string."),
        ("1@", "No hostname found after node id."),
        ("1@h", "No colon following hostname could be found."),
        ("1@[::1:1:x", "Hostname began with left bracket, but no right bracket was found."),
        ("1@[::1]1:x", "Port section must start with a colon."),
        ("1@h:1", "No colon following port could be found."),
        ("1@h:x:y", "Failed to parse port in dynamic voter string."),
        ("1@h:65536:y", "Invalid port 65536 in dynamic voter string."),
        ("1@h:1:y", "Failed to parse directory ID in dynamic voter string."),
        (f"1@h:1:{IDS[0]},1@g:1:{IDS[1]}", "Node id 1 was specified more than once."),
    ],
)
def test_a_list_of_controllers_that_is_none_is_refused(text: str, why: str) -> None:
    """One of several controllers would be left out of the quorum without a word."""
    with pytest.raises(FormatError, match=re.escape(why)):
        parse_initial_controllers(text, "CONTROLLER")


def test_nodes_of_one_cluster_get_no_ids_of_their_own(node: Format, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of three controllers would be of another cluster, which only their start would say."""
    for words, settings in (
        (("-I", CONTROLLERS), {}),
        (("-N",), {}),
        ((), {"controller.quorum.voters": "3001@127.0.0.1:9093,3002@127.0.0.1:9094"}),
    ):
        assert node(*words, cluster_id=None, **settings) == 2
        assert "--cluster-id is needed" in capsys.readouterr().err


# Reading


def records_at(path: Path) -> list[Any]:
    return bootstrap_records(SYSTEM_FILES, str(path))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """The active controller would write other records than formatting has chosen."""
    path = tmp_path / BOOTSTRAP_FILE
    records = feature_records(first_levels("4.1", {"group.version": 0}, is_dynamic=True))
    path.write_bytes(bootstrap_checkpoint(records, TIME))
    assert records_at(path) == records
    names = [record.value.name for record in records if isinstance(record.value, wire.FeatureLevelRecord)]
    assert names == [METADATA_VERSION, "eligible.leader.replicas.version", "transaction.version"]
    for vector in FORMATTED.glob("bootstrap-*.hex"):
        path.write_bytes(bytes_of(vector))
        assert without_times(bootstrap_checkpoint(records_at(path), TIME)) == without_times(bytes_of(vector))


def test_voters_come_back(tmp_path: Path) -> None:
    """The first leader would count other votes."""
    voters = parse_initial_controllers(CONTROLLERS, "CONTROLLER")
    history = VoterHistory(VoterSet())
    history.begin(snapshot_batches(initial_voters_checkpoint(voters, TIME), "a snapshot"))
    assert history.last == voters
    history.begin(snapshot_batches(bytes_of(FORMATTED / "voters.hex"), "Kafka's"))
    assert history.last == voters


def test_without_the_file_a_cluster_begins_with_the_newest_release(tmp_path: Path) -> None:
    """Directories that an earlier release has formatted would never have a metadata.version."""
    found = first_records(SYSTEM_FILES, str(tmp_path))
    assert found == default_bootstrap_records()
    (tmp_path / BOOTSTRAP_FILE).write_bytes(bytes_of(FORMATTED / "bootstrap-4.3.hex"))
    assert first_records(SYSTEM_FILES, str(tmp_path)) == found
    (tmp_path / BOOTSTRAP_FILE).write_bytes(b"")
    with pytest.raises(BootstrapError):
        first_records(SYSTEM_FILES, str(tmp_path))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """A cluster would begin with a part of its users and features, for good."""
    path = tmp_path / BOOTSTRAP_FILE
    whole = bytes_of(FORMATTED / "bootstrap-scram.hex")
    with pytest.raises(BootstrapError, match=f"there is no {re.escape(str(path))}"):
        records_at(path)
    path.write_bytes(b"")
    with pytest.raises(BootstrapError, match=r"is damaged \(it is empty\): copy that of another controller"):
        records_at(path)
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(BootstrapError, match=f"{re.escape(str(path))} is damaged"):
            records_at(path)
    start = 0
    for batch in whole_batches(whole, "a file"):
        # All that the checksum covers, and itself.
        for at in range(start + 17, start + len(batch.data), 7):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
            with pytest.raises(BootstrapError):
                records_at(path)
        start += len(batch.data)
    path.write_bytes(bootstrap_checkpoint(feature_records(default_levels())[1:], TIME))
    with pytest.raises(BootstrapError, match=r"No FeatureLevelRecord for metadata\.version was found"):
        records_at(path)
