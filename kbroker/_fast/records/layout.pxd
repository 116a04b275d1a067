# Where a record batch has what, in bytes from its beginning, the bits of its attributes (KIP-98), and where a message
# of the formats before has it: for C.
# `kbroker.records.layout` has the same for Python.
cdef enum:
    BASE_OFFSET_POSITION = 0
    BATCH_LENGTH_POSITION = 8
    PARTITION_LEADER_EPOCH_POSITION = 12
    MAGIC_POSITION = 16
    CRC_POSITION = 17
    ATTRIBUTES_POSITION = 21
    LAST_OFFSET_DELTA_POSITION = 23
    BASE_TIMESTAMP_POSITION = 27
    MAX_TIMESTAMP_POSITION = 35
    PRODUCER_ID_POSITION = 43
    PRODUCER_EPOCH_POSITION = 51
    BASE_SEQUENCE_POSITION = 53
    RECORDS_COUNT_POSITION = 57
    RECORDS_POSITION = 61
    HEADER_UP_TO_MAGIC_BYTES = 17
    LOG_OVERHEAD_BYTES = 12
    MIN_BATCH_LENGTH = 14
    STAMPED_BYTES = 16      # base offset, length and leader epoch: what an append writes into a header

    # A message has offset, size and magic where a batch has them.
    MESSAGE_CRC_POSITION = 12
    MESSAGE_CRC_START = 16          # of what the checksum covers
    MESSAGE_MAGIC_POSITION = 16
    MESSAGE_ATTRIBUTES_POSITION = 17
    MESSAGE_FIELDS_POSITION = 18    # of magic 1: its timestamp
    MESSAGE_FIXED_BYTES = 26        # of magic 0: all but key and value; the least that anything stored has

    COMPRESSION_MASK = 0x07
    TIMESTAMP_TYPE_MASK = 0x08
    TRANSACTIONAL_MASK = 0x10
    CONTROL_MASK = 0x20
    DELETE_HORIZON_MASK = 0x40
