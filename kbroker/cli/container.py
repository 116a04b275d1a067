"""`kbroker container`: what the image runs, in the place of Kafka's images (`kbroker.config.images`).

Without words, or with `start`, it does what their start scripts do: run the commands that the environment names, bind
new directories to the cluster's id, make first users of SCRAM, start the broker, and make the topics of
KAFKA_CREATE_TOPICS.  Other words are a command of kbroker's, or any program.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbroker.config import BrokerConfig, ConfigError
from kbroker.config.images.first_start import TOPICS, cluster_id, planned_topics, with_commands
from kbroker.config.images.logins import User
from kbroker.config.images.names import ImageError, obeys
from kbroker.config.images.settings import image_settings
from kbroker.own_python import module_command

if TYPE_CHECKING:
    from kbroker.metadata.security_image import ScramCredential, ScramKey

_START = "start"
_INIT_SCRIPT = "CUSTOM_INIT_SCRIPT"
_COMMAND_SECONDS = 60.0


@click.command(
    "container",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> int:
    """Start as Kafka's container images do, by their environment, or run WORDS: a command of kbroker, or any program.

    Without words, or with `start` and its options, it first does what those images' start scripts do: run the commands
    that the environment names, bind new directories to the cluster's id, make users of SCRAM; and behind the start the
    topics of KAFKA_CREATE_TOPICS.  docs/containers.md has the variables.
    """
    from kbroker.cli.main import COMMANDS, run

    if words[:1] in (("--help",), ("-h",)):
        context = click.get_current_context()
        click.echo(context.get_help())
        return 0
    if words and words[0] != _START:
        if words[0] in COMMANDS or words[0].startswith("-"):
            return run(list(words))
        try:
            os.execvp(words[0], words)
        except OSError as error:
            raise click.ClickException(f"{words[0]}: {error.strerror}, and no command of kbroker's either") from None
    prepare(os.environ, words[1:])
    return run([_START, *words[1:]])


def prepare(environ: Mapping[str, str], arguments: Sequence[str]) -> None:
    """All that comes before the start of the broker.  ClickException."""
    try:
        changed = with_commands(environ, _output)
        os.environ.update({name: value for name, value in changed.items() if environ.get(name) != value})
        _run_init_script(changed)
        config = _config(arguments)
        topics = planned_topics(changed)
        _bind(config, cluster_id(changed), changed)
    except (ImageError, ConfigError) as error:
        raise click.ClickException(str(error)) from None
    if topics:
        _make_topics_later(config)


def _config(arguments: Sequence[str]) -> BrokerConfig:
    """The settings with which `kbroker start` will start."""
    from kbroker.cli.start import command as start

    given = start.make_context(_START, list(arguments)).params
    return BrokerConfig.load(given["properties"], given["overrides"])


def _output(name: str, line: str) -> str:
    """What a line of a shell prints.  ImageError where it fails or prints nothing."""
    try:
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ImageError(f"environment {name}: the command does not end within {_COMMAND_SECONDS:.0f} s") from None
    if done.returncode or not done.stdout.strip():
        why = done.stderr.strip() or f"it printed nothing, with status {done.returncode}"
        raise ImageError(f"environment {name}: {why}; set what it would print instead ({line!r})")
    return done.stdout


def _run_init_script(environ: Mapping[str, str]) -> None:
    line = environ.get(_INIT_SCRIPT, "")
    if line.strip() and (status := subprocess.run(["sh", "-c", line], check=False).returncode):
        raise ImageError(f"environment {_INIT_SCRIPT}: it ended with status {status}")


def _bind(config: BrokerConfig, cluster: str, environ: Mapping[str, str]) -> None:
    """Bind new directories to the cluster that the environment names, and make its users of SCRAM."""
    from kbroker.cli.storage.format import format_directories

    users = image_settings(environ).scram_users if obeys(environ) else ()
    if config.get("zookeeper.connect") or not (cluster or users):
        return
    known = _known_cluster(config.log_dirs)
    credentials: Mapping[ScramKey, ScramCredential] = {}
    if users and not _has_store(config.log_dirs[0]):
        credentials = _credentials(users)
    if config.is_quorum_of_one:
        _format_alone(config, cluster, credentials)
    else:
        format_directories(config, known or cluster or None, credentials, ignore_formatted=True)


def _format_alone(config: BrokerConfig, cluster: str, credentials: Mapping[ScramKey, ScramCredential]) -> None:
    """The same for a broker that is its cluster's one controller, which keeps users in the metadata log."""
    from kbroker.assembly.membership.settings import metadata_directory
    from kbroker.assembly.own_quorum import format_alone
    from kbroker.storage.directories.log_dirs import LogDirError, open_directories
    from kbroker.storage.files.filesystem import FileSystem

    files = FileSystem()
    try:
        directories = open_directories(files, config.log_dirs)
    except LogDirError as error:
        raise click.ClickException(str(error)) from None
    try:
        if all(each.meta is None for each in directories):
            keeper = metadata_directory(config, directories)
            format_alone(config, files, directories, keeper, cluster or None, credentials)
    except LogDirError as error:
        raise click.ClickException(str(error)) from None
    finally:
        for each in directories:
            each.release()


def _credentials(users: Sequence[tuple[str, User]]) -> Mapping[ScramKey, ScramCredential]:
    from kbroker.metadata.security_image import ScramKey
    from kbroker.security.scram import BY_NAME, credential_of_password

    found = {}
    for name, user in users:
        mechanism = BY_NAME.get(name)
        if mechanism is None or not user.password:
            why = f"the mechanism {name} is none of {', '.join(BY_NAME)}" if mechanism is None else "an empty password"
            raise ImageError(f"environment KAFKA_CLIENT_USERS: user {user.name}: {why}")
        found[ScramKey(user.name, mechanism.value)] = credential_of_password(mechanism, user.password)
    return found


def _known_cluster(directories: Sequence[str]) -> str:
    """The cluster that directories belong to from an earlier start, as the images keep it; empty for new ones."""
    from kbroker.storage.directories.log_dirs import META_PROPERTIES

    for directory in directories:
        path = Path(directory) / META_PROPERTIES
        if path.is_file():
            lines = (line.partition("=") for line in path.read_text().splitlines())
            return next((value.strip() for key, _, value in lines if key.strip() == "cluster.id"), "")
    return ""


def _has_store(directory: str) -> bool:
    from kbroker.startup.new_store import StoreThereError, check_no_store
    from kbroker.storage.files.filesystem import FileSystem

    if not Path(directory).is_dir():
        return False
    try:
        check_no_store(FileSystem(), directory)
    except StoreThereError:
        return True
    return False


def _make_topics_later(config: BrokerConfig) -> None:
    """Start the process that makes topics when the broker serves."""
    if all(each.protocol != "PLAINTEXT" for each in config.listeners):
        raise click.ClickException(
            f"environment {TOPICS}: topics are made by a listener without TLS and SASL, and there is none: leave the "
            "variable out, and make them with kbroker topics"
        )
    subprocess.Popen(module_command("kbroker.cli.topics.first_topics"))
