"""The catalogue of groupings, free of numba: the manifest, the CRD and the operator know groupings by it."""

from __future__ import annotations

from streamtopology.topology.groupings.catalogue import DEFAULT_POLICY, GROUPINGS, KEYLESS_POLICY, get
from streamtopology.topology.groupings.options import GroupingOptionError, Option
from streamtopology.topology.groupings.spec import GroupingError, GroupingSpec

__all__ = [
    "DEFAULT_POLICY",
    "GROUPINGS",
    "KEYLESS_POLICY",
    "GroupingError",
    "GroupingOptionError",
    "GroupingSpec",
    "Option",
    "get",
]
