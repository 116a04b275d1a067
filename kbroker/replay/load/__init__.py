"""Topics in bulk: to Parquet with a manifest, and back into a topic.  `docs/load.md` is the guide.

from kbroker.replay.load import load_topics, LoadRequest, read_loaded, restore, RestoreRequest
from kbroker.replay.load import load_iceberg, IcebergRequest
"""

from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.export import load_topics, read_loaded
from kbroker.replay.load.iceberg import IcebergRequest, TableReport, load_iceberg
from kbroker.replay.load.load_request import LoadReport, LoadRequest
from kbroker.replay.load.manifest import Manifest
from kbroker.replay.load.restore import restore
from kbroker.replay.load.restore_request import RestoreRequest

__all__ = [
    "IcebergRequest",
    "LoadError",
    "LoadReport",
    "LoadRequest",
    "Manifest",
    "RestoreRequest",
    "TableReport",
    "load_iceberg",
    "load_topics",
    "read_loaded",
    "restore",
]
