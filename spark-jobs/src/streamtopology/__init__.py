"""A topology in Python: `from streamtopology import Topology` (docs/guide/python.md).

Each of our distributions has this file, word for word, and packages of its own beside it. Installed, all are in one folder; in
a checkout `__path__` names the folder of each.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamtopology.builder import TopologyBuilder as Topology

__all__ = ["Topology"]
# In place: the spec of this package has the same list.
__path__ += [each for entry in sys.path if os.path.isdir(each := f"{entry}/{__name__}") and each not in __path__]


def __getattr__(name: str) -> Any:
    """Loaded when it is first asked for: every part of the project imports this module, and few of them build topologies."""
    if name != "Topology":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamtopology.builder import TopologyBuilder

    return TopologyBuilder
