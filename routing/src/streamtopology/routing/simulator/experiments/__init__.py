"""The registry of experiments: a paper is a module, a row of its claims an `Experiment` in it."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.routing.simulator.experiment import Experiment, ExperimentError
from streamtopology.routing.simulator.experiments.consistent import CONSISTENT
from streamtopology.routing.simulator.experiments.dkg import DKG
from streamtopology.routing.simulator.experiments.locality import LOCALITY
from streamtopology.routing.simulator.experiments.mixed import MIXED
from streamtopology.routing.simulator.experiments.posg import POSG

__all__ = ["EXPERIMENTS", "get"]

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.id: experiment for experiment in (*DKG, *POSG, *CONSISTENT, *MIXED, *LOCALITY)
}


def get(name: str) -> Experiment:
    """The experiment of this id; ExperimentError names those that exist."""
    try:
        return EXPERIMENTS[name]
    except KeyError:
        raise ExperimentError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}") from None
