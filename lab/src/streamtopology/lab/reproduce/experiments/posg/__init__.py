"""POSG: Rivetti, Anceaume, Busnel, Querzoni, Sericola: Proactive Online Scheduling for Shuffle Grouping."""

from __future__ import annotations

from streamtopology.lab.reproduce.experiments.posg.rows import EPS, LOAD, SKEW, TWEETS, WMAX, WN, K
from streamtopology.lab.reproduce.experiments.posg.schedulers import SCHEDULERS
from streamtopology.lab.reproduce.experiments.posg.shift import SHIFT

__all__ = ["POSG"]

POSG = (SKEW, LOAD, WMAX, WN, K, EPS, SHIFT, TWEETS, SCHEDULERS)
