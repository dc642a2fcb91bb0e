"""The experiments of Consistent Grouping (Nasir et al.): its rows of the claims, and figures 4 and 7 beside them."""

from __future__ import annotations

from streamtopology.routing.simulator.experiment import Experiment
from streamtopology.routing.simulator.experiments.consistent.balance import BALANCE
from streamtopology.routing.simulator.experiments.consistent.queues import QUEUES

CONSISTENT: tuple[Experiment, ...] = (*BALANCE, *QUEUES)
