"""POSG: Rivetti, Anceaume, Busnel, Querzoni, Sericola: Proactive Online Scheduling for Shuffle Grouping."""

from __future__ import annotations

from streamtopology.routing.simulator.experiments.posg.rows import EPS, LOAD, SKEW, TWEETS, WMAX, WN, K
from streamtopology.routing.simulator.experiments.posg.schedulers import SCHEDULERS
from streamtopology.routing.simulator.experiments.posg.shift import SHIFT

__all__ = ["POSG"]

POSG = (SKEW, LOAD, WMAX, WN, K, EPS, SHIFT, TWEETS, SCHEDULERS)
