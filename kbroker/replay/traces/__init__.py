"""Traces in: files of many formats, segment directories and topics, read to the schema of `trace_schema`."""

from __future__ import annotations

from kbroker.replay.traces.errors import TraceError
from kbroker.replay.traces.mapping import Mapping, bundled, find_mapping, parse_mapping
from kbroker.replay.traces.reading import Trace, read_trace

__all__ = ["Mapping", "Trace", "TraceError", "bundled", "find_mapping", "parse_mapping", "read_trace"]
