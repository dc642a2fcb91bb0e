"""A manifest in Python: typed calls that give the values of its YAML form."""

from __future__ import annotations

from streamtopology.builder.streams import OperatorStream, SinkWriter, Stream, StreamReader
from streamtopology.builder.topology import TopologyBuilder

__all__ = ["OperatorStream", "SinkWriter", "Stream", "StreamReader", "TopologyBuilder"]
