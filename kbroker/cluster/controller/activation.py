"""What the leader of a new epoch appends before it decides anything (KIP-631, KIP-868).

A log without metadata.version is that of a new cluster: it gets the bootstrap records, in one metadata transaction.  A
transaction that the leader before has left open is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kbroker.metadata.broker_settings import ALL_BROKERS, BROKER_RESOURCE, MIN_INSYNC
from kbroker.metadata.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION, TRANSACTIONS_FROM
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage

BOOTSTRAP: Final = "Bootstrap records"
FAILOVER: Final = "Controller failover"


def activation_records(
    image: ClusterImage, bootstrap: Iterable[MetadataRecord], min_insync: int, *, is_transaction_open: bool
) -> Iterator[MetadataRecord]:
    """The records, none where the log goes on as it is.

    `bootstrap`: the records of this node's bootstrap.checkpoint.  `min_insync`: its static `min.insync.replicas`, which
    a cluster with ELRs has as a setting of all brokers.  ValueError where the bootstrap records have no
    metadata.version.
    """
    if is_transaction_open:
        yield metadata_record(wire.AbortTransactionRecord(reason=FAILOVER))
    if METADATA_VERSION in image.features.chosen:
        return
    records = list(bootstrap)
    levels = {
        each.value.name: each.value.feature_level for each in records if isinstance(each.value, wire.FeatureLevelRecord)
    }
    if METADATA_VERSION not in levels:
        raise ValueError("the bootstrap records do not say which metadata.version the cluster begins with")
    has_transactions = levels[METADATA_VERSION] >= TRANSACTIONS_FROM
    if has_transactions:
        yield metadata_record(wire.BeginTransactionRecord(name=BOOTSTRAP))
    yield from records
    if levels.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        yield metadata_record(
            wire.ConfigRecord(
                resource_type=BROKER_RESOURCE, resource_name=ALL_BROKERS, name=MIN_INSYNC, value=str(min_insync)
            )
        )
    if has_transactions:
        yield metadata_record(wire.EndTransactionRecord())
