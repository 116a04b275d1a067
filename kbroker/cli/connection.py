"""How commands reach a cluster: the options they share, and the clients they make.

What describes or changes a cluster speaks Kafka's protocol itself (`Cluster.admin`); records are written and read by
librdkafka.  Both take its settings (TLS, SASL, …): by `-X`, from a file by `--command-config`, or all of it from a
profile (`profiles.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import click

from kbroker.cli.command_config import command_config_option
from kbroker.cli.profile_option import bootstrap_of, client_settings_option, merged_settings, profile_option
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from kbroker.client.admin import ClusterAdmin
    from kbroker.client.cluster import ClientSettings

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

    @classmethod
    def at(cls, bootstrap: str, timeout: float) -> Cluster:
        """The cluster at an address, with the settings of the profile, `--command-config` and `-X`.  UsageError."""
        return cls(bootstrap, merged_settings(), timeout)

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

    @contextmanager
    def admin(self) -> Iterator[ClusterAdmin]:
        """A client that describes and changes the cluster.  ClickException for all that fails while it is used."""
        from kbroker.cli.refusals import failing_in_words
        from kbroker.client.admin import ClusterAdmin
        from kbroker.client.cluster import Cluster as WireCluster

        self.check_reachable()
        if self.settings:
            self._judge_settings()
        with failing_in_words(), WireCluster(self.bootstrap, self.wire_settings()) as cluster:
            yield ClusterAdmin(cluster)

    def _judge_settings(self) -> None:
        """ClickException for a setting that librdkafka does not have, or a value that it refuses."""
        from confluent_kafka import Producer

        try:
            Producer(self.client_settings())
        except Exception as error:
            raise client_error(error) from None

    def wire_settings(self) -> ClientSettings:
        """The settings of connections that speak Kafka's protocol themselves; `timeout` bounds each step.

        UsageError for security that makes no connection.
        """
        from kbroker.client.cluster import ClientSettings
        from kbroker.security.client.client_security import ClientSecurityError
        from kbroker.security.client.librdkafka_settings import librdkafka_security

        try:
            security = librdkafka_security(self.settings)
        except ClientSecurityError as error:
            raise click.UsageError(str(error)) from None
        return ClientSettings(
            client_id="kbroker-cli",
            connect_timeout_s=self.timeout,
            request_timeout_s=self.timeout,
            patience_s=self.timeout,
            security=security,
        )

    def check_reachable(self) -> None:
        """A connection negotiates and logs in, before any other client tries.  ClickException says what is wrong."""
        from kbroker.cli.reach import reach

        reach(self.addresses(), self.wire_settings())

    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports of `bootstrap`.  UsageError says which is none."""
        from kbroker.client.address import parse_bootstrap

        try:
            return parse_bootstrap(self.bootstrap, "--bootstrap-server")
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    def check_is_one(self) -> None:
        """UsageError for several addresses, of a command that asks one broker."""
        if len(self.addresses()) != 1:
            raise click.UsageError(f"--bootstrap-server {self.bootstrap}: must be one host:port")

    def near_topic(self, name: str) -> str:
        """`; did you mean X?` for a topic that there is not."""
        try:
            with self.admin() as admin:
                return admin.near(name, admin.topics)
        except click.ClickException:
            return ""


def _as_it_is(function: F) -> F:
    return function


timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=15.0, show_default=True, metavar="SECONDS"
)


def bootstrap_option(*others: str, takes_settings: bool = True) -> Callable[[F], F]:
    """`-b`, `--bootstrap-server` and other names for it, `-X`, `--command-config` and `--profile`; the command gets
    `bootstrap`, and the client's settings by `Cluster.at` or `merged_settings`.

    Without `takes_settings` there is no `-X`.
    """

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
        settings = client_settings_option if takes_settings else _as_it_is
        return option(settings(profile_option(command_config_option(function))))

    return decorate


def cluster_options(function: F) -> F:
    """Adds `--bootstrap-server`, the client's settings and `--timeout`; the command gets them as `cluster`."""

    @functools.wraps(function)
    def with_cluster(bootstrap: str, timeout: float, **others: object) -> object:
        return function(cluster=Cluster.at(bootstrap, timeout), **others)

    return cast("F", bootstrap_option()(timeout_option(with_cluster)))


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
