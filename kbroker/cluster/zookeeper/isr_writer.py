"""ISRs that a leader writes itself, as Kafka's did before inter.broker.protocol.version 2.7 (AlterPartition).

    /brokers/topics/T/partitions/P/state    set, if it has the version that the leader knows
    /isr_change_notification/isr_change_…   the partitions that were written: the controller reads them again

A state that another has written since is not touched.  One that has what the leader wants is: a write whose answer was
lost, and which is made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.cluster.requests import PartitionOutcome
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.session import BadVersionError, NoNodeError, ZooKeeperError
from kbroker.cluster.zookeeper.znode_json import ZnodeError
from kbroker.cluster.zookeeper.znodes import decode_state, encode_partitions, encode_state
from kbroker.errors import ErrorCode, InvalidUpdateVersionError, KafkaError, UnknownTopicOrPartitionError, bare
from kbroker.metadata.image import PartitionImage

if TYPE_CHECKING:
    from kbroker.cluster.requests import IsrChange
    from kbroker.cluster.zookeeper.session import ZooKeeper

logger = logging.getLogger("kbroker.cluster")


class IsrWriter:
    """Of broker `node_id`."""

    def __init__(self, zookeeper: ZooKeeper, node_id: int) -> None:
        self._zookeeper = zookeeper
        self._node_id = node_id

    async def alter(self, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        """See `Controller.alter_partitions`.  Raises ZooKeeperError where ZooKeeper cannot be reached."""
        outcomes = await asyncio.gather(*(self._write(change) for change in changes))
        written = [outcome.partition for outcome in outcomes if outcome.image is not None]
        if written:
            try:
                await self._zookeeper.create(paths.ISR_CHANGE_PREFIX, encode_partitions(written), sequential=True)
            except ZooKeeperError as error:
                # The states are in force; the controller learns of them when it reads them next.
                logger.warning("the controller does not hear of %d ISRs: %s", len(written), error)
        return list(outcomes)

    async def _write(self, change: IsrChange) -> PartitionOutcome:
        name = change.partition
        try:
            return PartitionOutcome(name, await self._written(change))
        except ZooKeeperError:
            raise
        except KafkaError as error:
            return PartitionOutcome(name, error=bare(error))

    async def _written(self, change: IsrChange) -> PartitionImage:
        path = paths.state(*change.partition)
        isr = tuple(node_id for node_id, _ in change.isr)
        try:
            found = await self._zookeeper.get(path)
            state = decode_state(found.data)
        except NoNodeError:
            raise UnknownTopicOrPartitionError() from None
        except ZnodeError as error:
            raise InvalidUpdateVersionError(f"{path} makes no sense: {error}") from None
        if (state.leader, state.leader_epoch) != (self._node_id, change.leader_epoch):
            raise KafkaError.of(ErrorCode.FENCED_LEADER_EPOCH)
        version = found.stat.version
        if state.isr != isr:
            if version != change.partition_epoch:
                raise InvalidUpdateVersionError()
            # A change of the ISR ends what an unclean election has begun.
            wanted = encode_state(state._replace(isr=isr, is_recovering=False))
            try:
                version = (await self._zookeeper.set(path, wanted, version)).version
            except BadVersionError:
                raise InvalidUpdateVersionError() from None
            except NoNodeError:
                raise UnknownTopicOrPartitionError() from None
        return PartitionImage(change.partition.partition, state.leader, state.leader_epoch, (), isr, version)
