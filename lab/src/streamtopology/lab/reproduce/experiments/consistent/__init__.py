"""The experiments of Consistent Grouping (Nasir et al.): its rows of the claims, and figures 4 and 7."""

from __future__ import annotations

from streamtopology.lab.reproduce.experiment import Experiment
from streamtopology.lab.reproduce.experiments.consistent.balance import BALANCE
from streamtopology.lab.reproduce.experiments.consistent.change import CG_CHANGE
from streamtopology.lab.reproduce.experiments.consistent.clusters import CG_RANGE
from streamtopology.lab.reproduce.experiments.consistent.queues import CG_EQUAL, CG_HETERO, CG_VIRTUAL

CONSISTENT: tuple[Experiment, ...] = (*BALANCE, CG_EQUAL, CG_HETERO, CG_RANGE, CG_VIRTUAL, CG_CHANGE)
