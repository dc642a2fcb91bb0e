"""`posg` and `posg-merged`: Proactive Online Shuffle Grouping (Rivetti, Anceaume, Busnel, Querzoni, Sericola).

Instances measure the cost of tuples by key and send sketches; the scheduler sums the estimated work of each instance and
gives each tuple to the one with the least. On micro-batches the batch boundary is the paper's synchronisation: reports
give each instance's actual work (C) after all its tuples, so every chooser starts in RUN with C-hat = C once all instances
have sent their sketches, and in ROUND_ROBIN before. The lab's continuous simulation has all four states.
"""

from __future__ import annotations

from streamtopology.routing.groupings.posg.chooser import PosgChooser, PosgMergedChooser
from streamtopology.routing.groupings.posg.instance import PosgInstance
from streamtopology.routing.groupings.posg.knowledge import PosgKnowledge, PosgReport

__all__ = [
    "PosgChooser",
    "PosgInstance",
    "PosgKnowledge",
    "PosgMergedChooser",
    "PosgReport",
]
