"""Where a record batch (KIP-98) and a message of the formats before have what, in bytes from their beginning.

The numbers are those of `_fast/records/layout.pxd`, which has them for C.
"""

from __future__ import annotations

from kbroker._fast.records.record_batch import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC_V2, POSITIONS

__all__ = ["BATCH_OVERHEAD", "LOG_OVERHEAD", "MAGIC_V2"]

LENGTH_POSITION = POSITIONS["length"]
"""int32: how many bytes follow it; LOG_OVERHEAD stand before and in it.  Messages of the older formats have it, too."""
LENGTH_END = LENGTH_POSITION + 4
MAGIC_POSITION = POSITIONS["magic"]
"""int8, at the same place in messages of the older formats."""
ATTRIBUTES_LOW_POSITION = POSITIONS["attributes"] + 1
"""The byte of the attributes that has bits."""
MAX_TIMESTAMP_POSITION = POSITIONS["max_timestamp"]
PRODUCER_ID_POSITION = POSITIONS["producer_id"]
STAMPED_BYTES = POSITIONS["stamped"]
"""Base offset, length and leader epoch: what an append writes into a header, in front of what the checksum covers."""
ATTRIBUTES_POSITION = POSITIONS["attributes"]
"""Here begins what the checksum covers."""
CRC_POSITION = POSITIONS["crc"]

# Of messages of the formats before.
MESSAGE_CRC_POSITION = POSITIONS["message_crc"]
MESSAGE_CRC_START = POSITIONS["message_crc_start"]
MESSAGE_ATTRIBUTES_POSITION = POSITIONS["message_attributes"]
MESSAGE_TIMESTAMP_POSITION = POSITIONS["message_timestamp"]
LEAST_STORED_BYTES = POSITIONS["message_fixed"]
"""A message of the first format without key and value: nothing that is stored is smaller."""
