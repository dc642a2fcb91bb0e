"""Locality-aware routing (Caneill et al., Middleware 2016): its experiments."""

from __future__ import annotations

from streamtopology.routing.simulator.experiments.locality.edges import EDGES
from streamtopology.routing.simulator.experiments.locality.online import ONLINE
from streamtopology.routing.simulator.experiments.locality.reconfigure import RECONFIGURE
from streamtopology.routing.simulator.experiments.locality.synthetic import SYNTHETIC

LOCALITY = (SYNTHETIC, ONLINE, EDGES, RECONFIGURE)
