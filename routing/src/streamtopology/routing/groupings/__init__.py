"""The registry of groupings: a new one is a module and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.routing.groupings.bounded import BOUNDED_HASH, PORC
from streamtopology.routing.groupings.consistent import CONSISTENT
from streamtopology.routing.groupings.dkg import DKG
from streamtopology.routing.groupings.earliest_finish import EARLIEST_FINISH
from streamtopology.routing.groupings.fields import FIELDS
from streamtopology.routing.groupings.local_or_shuffle import LOCAL_OR_SHUFFLE
from streamtopology.routing.groupings.locality import LOCALITY, LOCALITY_OFFLINE, LOCALITY_WORST
from streamtopology.routing.groupings.many_choices import D_CHOICES, W_CHOICES
from streamtopology.routing.groupings.mixed import MINMIG, MINTABLE, MIXED, READJ, SIMPLE
from streamtopology.routing.groupings.partial_key import PARTIAL_KEY
from streamtopology.routing.groupings.posg import POSG, POSG_MERGED
from streamtopology.routing.groupings.potc import POTC
from streamtopology.routing.groupings.shuffle import SHUFFLE
from streamtopology.routing.groupings.spec import Chooser, GroupingError, GroupingSpec, Option, OptionError, VirtualChooser

__all__ = ["GROUPINGS", "Chooser", "GroupingError", "GroupingSpec", "Option", "OptionError", "VirtualChooser", "get"]

_SPECS = (
    SHUFFLE,
    FIELDS,
    PARTIAL_KEY,
    MIXED,
    MINTABLE,
    MINMIG,
    SIMPLE,
    READJ,
    DKG,
    CONSISTENT,
    POTC,
    PORC,
    BOUNDED_HASH,
    D_CHOICES,
    W_CHOICES,
    POSG,
    POSG_MERGED,
    EARLIEST_FINISH,
    LOCAL_OR_SHUFFLE,
    LOCALITY,
    LOCALITY_OFFLINE,
    LOCALITY_WORST,
)

GROUPINGS: Mapping[str, GroupingSpec] = {spec.name: spec for spec in _SPECS}


def get(name: str) -> GroupingSpec:
    """The grouping of this name; GroupingError names those that exist."""
    try:
        return GROUPINGS[name]
    except KeyError:
        raise GroupingError(f"there is no grouping {name!r}; there are {', '.join(GROUPINGS)}") from None
