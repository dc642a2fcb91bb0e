"""The registry of experiments: a paper is a module, a row of its claims an `Experiment` in it."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.lab.reproduce.experiment import Experiment, ExperimentError
from streamtopology.lab.reproduce.experiments.beyond import BEYOND
from streamtopology.lab.reproduce.experiments.consistent import CONSISTENT
from streamtopology.lab.reproduce.experiments.dkg import DKG
from streamtopology.lab.reproduce.experiments.locality import LOCALITY
from streamtopology.lab.reproduce.experiments.mixed import MIXED
from streamtopology.lab.reproduce.experiments.posg import POSG

__all__ = ["BEYOND", "EXPERIMENTS", "get"]

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.id: experiment for experiment in (*DKG, *POSG, *CONSISTENT, *MIXED, *LOCALITY, *BEYOND)
}


def get(name: str) -> Experiment:
    """The experiment of this id; ExperimentError names those that exist."""
    try:
        return EXPERIMENTS[name]
    except KeyError:
        raise ExperimentError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}") from None
