"""The experiments of DKG (Rivetti et al., Efficient Key Grouping for Near-Optimal Load Balancing, DEBS 2015)."""

from __future__ import annotations

from streamtopology.lab.reproduce.experiments.dkg.instances import DKG_K, DKG_QUADRATIC, DKG_SIGMA
from streamtopology.lab.reproduce.experiments.dkg.parameters import DKG_LEARN, DKG_MU, DKG_THETA
from streamtopology.lab.reproduce.experiments.dkg.related import DKG_PARALLEL, DKG_PKG, DKG_WOSIM

__all__ = ["DKG"]

DKG = (DKG_K, DKG_SIGMA, DKG_QUADRATIC, DKG_MU, DKG_THETA, DKG_LEARN, DKG_WOSIM, DKG_PKG, DKG_PARALLEL)
