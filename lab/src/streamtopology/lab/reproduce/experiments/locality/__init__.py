"""Locality-aware routing (Caneill et al., Middleware 2016): its experiments."""

from __future__ import annotations

from streamtopology.lab.reproduce.experiments.locality.edges import EDGES
from streamtopology.lab.reproduce.experiments.locality.online import ONLINE
from streamtopology.lab.reproduce.experiments.locality.reconfigure import RECONFIGURE
from streamtopology.lab.reproduce.experiments.locality.synthetic import SYNTHETIC

LOCALITY = (SYNTHETIC, ONLINE, EDGES, RECONFIGURE)
