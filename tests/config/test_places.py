"""Every pair of settings that names two ways of being in a cluster: what becomes of it.

`SINGLE`, `WORKERS`, `ZOOKEEPER` and `KRAFT` are the ways; else the key that is refused, and a word of the reason.
"""

from __future__ import annotations

from itertools import combinations

import pytest

from kbroker.assembly.membership.settings import membership_settings
from kbroker.cluster.workers.worker_slot import check_count, worker_count
from kbroker.config import BrokerConfig, ConfigError

SINGLE, WORKERS, ZOOKEEPER, KRAFT = "single node", "workers", "ZooKeeper", "KRaft"
REACHED = {"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "/nowhere/at/all"}
CONTROLLERS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
WAYS: dict[str, dict[str, str]] = {
    "zookeeper": {"zookeeper.connect": "zk:2181"},
    "broker": {"process.roles": "broker", **CONTROLLERS},
    "combined": {"process.roles": "broker,controller", **CONTROLLERS},
    "own voter": {"controller.quorum.voters": "1@localhost:9093"},
    "other voter": {"controller.quorum.voters": "9@c:9093"},
    "one bootstrap": {"controller.quorum.bootstrap.servers": "c:9093"},
    "more bootstraps": {"controller.quorum.bootstrap.servers": "c:9093,d:9093"},
    "workers": {"kbroker.workers": "2"},
    "auto": {"kbroker.workers": "auto"},
    "node.id": {"node.id": "1"},
    "broker.id": {"broker.id": "1"},
    "other broker.id": {"broker.id": "2"},
}
Refused = tuple[str, str]
VOTERS, BOOTSTRAP = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
TWO_METADATA, NO_MIGRATION = ("zookeeper.connect", "KRaft quorum"), "migration"
TWO_CLUSTERS = ("kbroker.workers", "cluster of their own")
NO_QUORUM, NO_VOTER = ("process.roles", "must contain"), "process.roles is not set"
NO_LISTENER = ("controller.listener.names", "must contain at least one value appearing")
ALONE: dict[str, str | Refused] = {
    "zookeeper": ZOOKEEPER,
    "broker": NO_QUORUM,
    "combined": SINGLE,
    "own voter": SINGLE,
    "other voter": (VOTERS, NO_VOTER),
    "one bootstrap": SINGLE,
    "more bootstraps": (BOOTSTRAP, NO_VOTER),
    "workers": WORKERS,
    "auto": WORKERS,
    "node.id": SINGLE,
    "broker.id": SINGLE,
    "other broker.id": SINGLE,
}
PAIRS: dict[tuple[str, str], str | Refused] = {
    ("zookeeper", "broker"): TWO_METADATA,
    ("zookeeper", "combined"): TWO_METADATA,
    ("zookeeper", "own voter"): (VOTERS, NO_MIGRATION),
    ("zookeeper", "other voter"): (VOTERS, NO_MIGRATION),
    ("zookeeper", "one bootstrap"): (BOOTSTRAP, NO_MIGRATION),
    ("zookeeper", "more bootstraps"): (BOOTSTRAP, NO_MIGRATION),
    ("zookeeper", "workers"): TWO_CLUSTERS,
    ("zookeeper", "auto"): TWO_CLUSTERS,
    ("broker", "own voter"): ("process.roles", "must not be included"),
    ("broker", "other voter"): KRAFT,
    ("broker", "one bootstrap"): KRAFT,
    ("broker", "more bootstraps"): KRAFT,
    ("broker", "workers"): TWO_CLUSTERS,
    ("broker", "auto"): TWO_CLUSTERS,
    ("combined", "own voter"): NO_LISTENER,
    ("combined", "one bootstrap"): NO_LISTENER,
    ("combined", "other voter"): NO_LISTENER,
    ("combined", "more bootstraps"): NO_LISTENER,
    ("own voter", "other broker.id"): (VOTERS, NO_VOTER),
    ("node.id", "other broker.id"): ("node.id", "same value"),
}
"""Those in which one does not leave the other as it is; `_expected` has the rest."""
SAME_KEY = [{"broker", "combined"}, {"own voter", "other voter"}, {"one bootstrap", "more bootstraps"}]
SAME_KEY += [{"workers", "auto"}, {"broker.id", "other broker.id"}]


def _expected(first: str, second: str) -> str | Refused:
    known = PAIRS.get((first, second))
    if known is not None:
        return known
    found = [ALONE[each] for each in (first, second)]
    # One that is refused is so beside another as well; any other way counts for more than that of a single node.
    return next((each for each in found if not isinstance(each, str)), None) or next(
        (each for each in found if each != SINGLE), SINGLE
    )


def _became(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str | Refused:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2})
    try:
        config = BrokerConfig.load(None, [f"{key}={value}" for key, value in {**REACHED, **settings}.items()], {})
    except ConfigError as error:
        return "", str(error)
    count = worker_count(config)
    check_count(config, count)
    if count > 1:
        return WORKERS
    if config.is_kraft_broker:
        return KRAFT
    return SINGLE if membership_settings(config) is None else ZOOKEEPER


def _check(found: str | Refused, expected: str | Refused) -> None:
    if isinstance(expected, str):
        assert found == expected
    else:
        assert not isinstance(found, str), found
        assert all(word in found[1] for word in expected), found


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_being_in_a_cluster_by_itself(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of pairs would say nothing."""
    _check(_became(WAYS[way], monkeypatch), ALONE[way])


@pytest.mark.parametrize(
    ("first", "second"), [pair for pair in combinations(WAYS, 2) if not any(set(pair) == each for each in SAME_KEY)]
)
def test_two_ways_of_being_in_a_cluster_are_refused(first: str, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker would start as a cluster of its own with the id of the one that it is to be in, and take records that
    nobody else sees."""
    _check(_became({**WAYS[first], **WAYS[second]}, monkeypatch), _expected(first, second))


@pytest.mark.parametrize("workers", ["2", "auto"])
def test_workers_of_a_broker_of_a_quorum_are_refused(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would make a store of their own, and format directories without a word."""
    settings = {**WAYS["broker"], **WAYS["one bootstrap"], "kbroker.workers": workers}
    _check(_became(settings, monkeypatch), TWO_CLUSTERS)
    _check(_became({**settings, "kbroker.workers": "1"}, monkeypatch), KRAFT)
