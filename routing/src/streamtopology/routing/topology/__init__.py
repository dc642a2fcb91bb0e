"""The manifest as typed values: read it, judge it, write it, compare two of them."""

from __future__ import annotations

from streamtopology.routing.topology.checks import check_traits
from streamtopology.routing.topology.difference import Change, Level, difference
from streamtopology.routing.topology.parsing import load, parse
from streamtopology.routing.topology.pods import POD_FIELDS, write_pod
from streamtopology.routing.topology.problems import ManifestError, Problem
from streamtopology.routing.topology.quantities import (
    QuantityError,
    format_cpu,
    format_duration,
    format_memory,
    parse_cpu,
    parse_duration,
    parse_memory,
)
from streamtopology.routing.topology.schema import SchemaError, columns_of
from streamtopology.routing.topology.traits import BUILTINS, Traits
from streamtopology.routing.topology.values import (
    API_VERSION,
    DESCRIPTOR_FILE_FORMATS,
    DESCRIPTOR_FORMATS,
    KIND,
    SINK_FORMATS,
    Autoscale,
    AutoscaleBy,
    BadTuple,
    Driver,
    ExecutorClass,
    Grouping,
    ImagePullPolicy,
    Input,
    Migration,
    Operator,
    PodSettings,
    Rebalance,
    RebalanceMode,
    Sink,
    Source,
    Topology,
    Trigger,
    Watermark,
)
from streamtopology.routing.topology.writing import to_manifest

__all__ = [
    "API_VERSION",
    "BUILTINS",
    "DESCRIPTOR_FILE_FORMATS",
    "DESCRIPTOR_FORMATS",
    "KIND",
    "POD_FIELDS",
    "SINK_FORMATS",
    "Autoscale",
    "AutoscaleBy",
    "BadTuple",
    "Change",
    "Driver",
    "ExecutorClass",
    "Grouping",
    "ImagePullPolicy",
    "Input",
    "Level",
    "ManifestError",
    "Migration",
    "Operator",
    "PodSettings",
    "Problem",
    "QuantityError",
    "Rebalance",
    "RebalanceMode",
    "SchemaError",
    "Sink",
    "Source",
    "Topology",
    "Traits",
    "Trigger",
    "Watermark",
    "check_traits",
    "columns_of",
    "difference",
    "format_cpu",
    "format_duration",
    "format_memory",
    "load",
    "parse",
    "parse_cpu",
    "parse_duration",
    "parse_memory",
    "to_manifest",
    "write_pod",
]
