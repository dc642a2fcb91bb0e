"""The groupings, free of numba: the manifest, the CRD and the operator know them by their declarations."""

from __future__ import annotations

from streamtopology.topology.groupings.catalogue import BUILT_IN, DEFAULT_POLICY, KEYLESS_POLICY
from streamtopology.topology.groupings.options import GroupingOptionError, Option
from streamtopology.topology.groupings.registry import GROUPINGS, code_of, find, get
from streamtopology.topology.groupings.spec import GroupingError, GroupingSpec

__all__ = [
    "BUILT_IN",
    "DEFAULT_POLICY",
    "GROUPINGS",
    "KEYLESS_POLICY",
    "GroupingError",
    "GroupingOptionError",
    "GroupingSpec",
    "Option",
    "code_of",
    "find",
    "get",
]
