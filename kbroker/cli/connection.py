"""How commands reach a broker: the options they share, the client they make, and its errors as one line.

The client is confluent-kafka, so every command works on any Kafka; `-X` hands it its own settings (TLS, SASL, …), and
`--command-config` takes them from a file, and `--profile` takes all of it from a profile (`profiles.py`).
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import click

from kbroker.cli.advertised import check_advertised
from kbroker.cli.command_config import command_config_option
from kbroker.cli.output import parse_pairs
from kbroker.cli.profile_option import bootstrap_of, merged_settings, profile_option
from kbroker.cli.wire_client import wire_settings
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode
from kbroker.nearest import did_you_mean

if TYPE_CHECKING:
    from types import ModuleType

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

    from kbroker.client.cluster import Cluster as WireCluster
    from kbroker.client.connection import Connection

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
CONNECT_SECONDS = 5.0
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that a command talks to."""

    bootstrap: str
    settings: dict[str, str]
    timeout: float

    def client_settings(self) -> dict[str, str]:
        """What every client of this cluster gets: librdkafka's names, values as text."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "kbroker-cli",
            # Failures are reported as one line by the command; the client's own log would repeat them.
            "log_level": "0",
            "allow.auto.create.topics": "false",
            **self.settings,
        }

    def admin(self) -> AdminClient:
        """An admin client.  ClickException when nothing answers or a setting is wrong."""
        self.check_reachable()
        settings = self.client_settings()
        del settings["allow.auto.create.topics"]
        try:
            client: AdminClient = admin_api().AdminClient(settings)
            return client
        except Exception as error:
            raise client_error(error) from None

    def check_reachable(self) -> None:
        """Says at once that nothing listens there, where the client would try until its time is up."""
        protocol = self.settings.get("security.protocol", "plaintext").lower()
        plain = protocol in ("plaintext", "sasl_plaintext")
        reasons = []
        for host, port in self.addresses():
            try:
                with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
                    other = _spoken_there(connection) if plain else None
            except OSError as error:
                other = error.strerror or str(error)
            if other is None:
                check_advertised(host, port, self.timeout)
                return
            reasons.append(f"{host}:{port}: {other}")
        raise click.ClickException(f"cannot connect to {'; '.join(reasons)}")

    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports of `bootstrap`.  UsageError says which is none."""
        from kbroker.client.address import parse_bootstrap

        try:
            return parse_bootstrap(self.bootstrap, "--bootstrap-server")
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    def address(self) -> tuple[str, int]:
        """The one address of a command that asks one broker."""
        addresses = self.addresses()
        if len(addresses) != 1:
            raise click.UsageError(f"--bootstrap-server {self.bootstrap}: must be one host:port")
        return addresses[0]

    def near_topic(self, name: str) -> str:
        """`; did you mean X?` for a topic that there is not."""
        from confluent_kafka import KafkaException

        try:
            return did_you_mean(name, self.admin().list_topics(timeout=CONNECT_SECONDS).topics)
        except (KafkaException, click.ClickException):
            return ""

    def near_group(self, name: str) -> str:
        """`; did you mean X?` for a group that there is not."""
        from confluent_kafka import KafkaException

        try:
            admin = self.admin()  # It must live until the answer is there.
            future = admin.list_consumer_groups(request_timeout=CONNECT_SECONDS)
            return did_you_mean(name, [group.group_id for group in result_of(future, CONNECT_SECONDS).valid])
        except (KafkaException, click.ClickException):
            return ""


def _spoken_there(connection: socket.socket) -> str | None:
    """The protocol of a server that is no Kafka; None when it may be Kafka, also when it is slow to answer."""
    from kbroker.client.address import FIRST_BYTES, GREETING, other_protocol

    try:
        connection.sendall(GREETING)
        return other_protocol(connection.recv(FIRST_BYTES, socket.MSG_WAITALL))
    except OSError:
        return None


timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=15.0, show_default=True, metavar="SECONDS"
)


def bootstrap_option(*others: str) -> Callable[[F], F]:
    """`-b`, `--bootstrap-server` and other names for it, `--command-config` and `--profile`; the command gets
    `bootstrap`."""

    def decorate(function: F) -> F:
        option: Callable[[F], F] = click.option(
            "-b",
            *others,
            "--bootstrap-server",
            "bootstrap",
            callback=bootstrap_of(DEFAULT_BOOTSTRAP),
            metavar="HOST:PORT[,…]",
            help=f"Where the cluster is.  [default: the profile's, or {DEFAULT_BOOTSTRAP}]",
        )
        return option(profile_option(command_config_option(function)))

    return decorate


def cluster_options(function: F) -> F:
    """Adds `--bootstrap-server`, `-X` and `--timeout`; the command gets them as `cluster`."""

    @functools.wraps(function)
    def with_cluster(bootstrap: str, client_settings: tuple[str, ...], timeout: float, **others: object) -> object:
        settings = merged_settings(parse_pairs(client_settings, "-X"))
        return function(cluster=Cluster(bootstrap, settings, timeout), **others)

    decorated: Callable[..., object] = with_cluster
    for option in (
        timeout_option,
        click.option("-X", "client_settings", multiple=True, metavar="KEY=VALUE", help="A setting of the client."),
        bootstrap_option(),
    ):
        decorated = option(decorated)
    return cast("F", decorated)


def admin_api() -> ModuleType:
    """`confluent_kafka.admin`, whose type hints do not export its own names."""
    import confluent_kafka.admin

    return confluent_kafka.admin


def describe_error(error: KafkaError) -> str:
    """A client's error for people: Kafka's name of it and what the broker said."""
    name, text = error.name(), error.str()
    if name in ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"):
        return f"the broker does not support this request ({text})"
    if name.startswith("_"):
        return str(text)
    # Kafka's spelling; the client shortens some names.
    return f"{error_name(error.code())}: {text.removeprefix('Broker: ')}"


def client_error(error: Exception) -> click.ClickException:
    """A client's exception as the one line that the user sees.  Raises anything that is no failure of a request."""
    from confluent_kafka import KafkaError, KafkaException

    if isinstance(error, KafkaException):
        reason = error.args[0]
        return click.ClickException(describe_error(reason) if isinstance(reason, KafkaError) else str(reason))
    if isinstance(error, TimeoutError):
        return click.ClickException("no answer in time")
    if isinstance(error, ValueError | TypeError):
        return click.ClickException(str(error))
    raise error


T = TypeVar("T")
K = TypeVar("K")


def result_of(future: Future[T], timeout: float) -> T:
    """The result of an admin request, or a ClickException."""
    try:
        return future.result(timeout)
    except Exception as error:
        raise client_error(error) from None


def results_of(
    futures: dict[K, Future[T]], timeout: float, cluster: Cluster | None = None
) -> tuple[dict[K, T], list[str]]:
    """Results by key, and a line for each that failed; `cluster`: keys are topics, and similar ones are suggested."""
    results: dict[K, T] = {}
    errors: list[str] = []
    for key, future in futures.items():
        try:
            results[key] = result_of(future, timeout)
        except click.ClickException as error:
            text = error.format_message()
            if cluster is not None and text.startswith(UNKNOWN_TOPIC):
                text += cluster.near_topic(str(key))
            errors.append(f"{key}: {text}")
    return results, errors


@contextmanager
def connected(bootstrap: str, timeout: float) -> Iterator[Connection]:
    """A connection to one broker over Kafka's protocol, for what librdkafka does not do."""
    from kbroker.client.errors import ClientError

    cluster = Cluster(bootstrap, {}, timeout)
    host, port = cluster.address()
    cluster.check_reachable()
    try:
        with wire_settings(timeout).connect(host, port) as connection:
            yield connection
    except ClientError as error:
        raise click.ClickException(str(error)) from None


def refuse(code: int, text: str | None) -> None:
    """ClickException for an error of the broker; nothing for code 0."""
    if code:
        raise click.ClickException(f"{error_name(code)}: {text}" if text else error_name(code))


@contextmanager
def wire_cluster(bootstrap: str, timeout: float) -> Iterator[WireCluster]:
    """A cluster that is spoken to over Kafka's protocol."""
    from kbroker.client.cluster import Cluster as WireCluster
    from kbroker.client.errors import ClientError

    Cluster(bootstrap, {}, timeout).check_reachable()
    try:
        with WireCluster(bootstrap, wire_settings(timeout)) as cluster:
            yield cluster
    except ClientError as error:
        raise click.ClickException(str(error)) from None
