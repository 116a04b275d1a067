"""Keys and values of control records: transaction markers and the records of the metadata quorum."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, SharedStruct, data

MESSAGES: tuple[MessageSchema, ...] = (
    data("ControlRecordTypeSchema", "0", "none").of(
        F("type", "int16", "0+"),
    ),
    data("EndTxnMarker", "0", "none").of(
        F("coordinator_epoch", "int32", "0+"),
    ),
    data("LeaderChangeMessage", "0-1", "0+")
    .of(
        F("version", "int16", "0+"),
        F("leader_id", "int32", "0+"),
        F("voters", "[]Voter", "0+"),
        F("granting_voters", "[]Voter", "0+"),
    )
    .sharing(
        SharedStruct("Voter").of(
            F("voter_id", "int32", "0+"),
            F("voter_directory_id", "uuid", "1+"),
        ),
    ),
    data("SnapshotHeaderRecord", "0", "0+").of(
        F("version", "int16", "0+"),
        F("last_contained_log_timestamp", "int64", "0+"),
    ),
    data("SnapshotFooterRecord", "0", "0+").of(
        F("version", "int16", "0+"),
    ),
    data("KRaftVersionRecord", "0", "0+").of(
        F("version", "int16", "0+"),
        F("kraft_version", "int16", "0+"),
    ),
    data("VotersRecord", "0", "0+").of(
        F("version", "int16", "0+"),
        F("voters", "[]Voter", "0+").of(
            F("voter_id", "int32", "0+"),
            F("voter_directory_id", "uuid", "0+"),
            F("endpoints", "[]Endpoint", "0+").of(
                F("name", "string", "0+"),
                F("host", "string", "0+"),
                F("port", "uint16", "0+"),
            ),
            F("kraft_version_feature", "KRaftVersionFeature", "0+").of(
                F("min_supported_version", "int16", "0+"),
                F("max_supported_version", "int16", "0+"),
            ),
        ),
    ),
)
