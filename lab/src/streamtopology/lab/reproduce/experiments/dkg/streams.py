"""The streams of the paper's simulations (Rivetti et al., section 5.1), and what the learning phase makes of one.

n items with Zipf frequencies; each run maps them at random, one to one, into a universe 100 times larger, so that no
hash function is lucky by design. Tuples are independent, so a stream is drawn as counts per item; their order matters
only to PKG, which asks for it. Every run draws its own stream: a mean over runs is also one over samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from streamtopology.lab.groupings.dkg_learning import DkgLearning
from streamtopology.lab.reproduce.experiment import Parameters, Progress
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.routing.load.sketches.space_saving import SpaceSaving
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import bucket_of

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Section 5.1. `batch`: tuples that a learner takes in at once; the paper's takes one.
SETUP: Parameters = {"items": 10_000, "universe": 100, "learning": 80_000, "validation": 20_000, "batch": 10_000}


@dataclass(frozen=True, eq=False)
class Stream:
    """One stream: `keys` int64[n], the items' values; `learning` int64[batches, n] and `validation` int64[n], tuples of
    each item."""

    keys: npt.NDArray[np.int64]
    learning: Counts
    validation: Counts

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        return hash_int64(self.keys)

    @cached_property
    def seen(self) -> npt.NDArray[np.int64]:
        """The items in the validation set: the only ones that load anything."""
        return np.flatnonzero(self.validation)

    def validation_in_order(self, rng: np.random.Generator) -> npt.NDArray[np.uint64]:
        """uint64[tuples]: the hashes of the validation set, in random order."""
        return rng.permutation(np.repeat(self.hashes, self.validation))

    def sketch(self, eps: float) -> SpaceSaving:
        """SpaceSaving after the learning set."""
        learning = DkgLearning.of(eps, 1)
        for batch in self.learning:
            items = np.flatnonzero(batch)
            learning.learn(self.hashes[items], batch[items])
        return learning.sketch

    def learnt(self, sketch: SpaceSaving, n_buckets: int) -> DkgLearning:
        """The learning phase with this sketch. v_h is a sum, whatever the batches: one sketch serves any k and mu."""
        totals = self.learning.sum(axis=0)
        buckets = np.bincount(bucket_of(self.hashes, n_buckets), totals, n_buckets)
        return DkgLearning(sketch, buckets.astype(np.int64))


def draw_stream(probabilities: Floats, parameters: Parameters, rng: np.random.Generator) -> Stream:
    """A stream of the set-up in `parameters`: `universe`, `learning`, `validation` and `batch` as in `SETUP`."""
    n, batch = len(probabilities), int(parameters["batch"])
    keys = rng.choice(n * int(parameters["universe"]), n, replace=False)
    full, rest = divmod(int(parameters["learning"]), batch)
    sizes = np.array([batch] * full + [rest] * (rest > 0))
    learning = rng.multinomial(sizes[:, None] if len(sizes) > 1 else sizes, probabilities)
    return Stream(keys, learning.reshape(len(sizes), n), rng.multinomial(int(parameters["validation"]), probabilities))


def streams(
    alpha: float, parameters: Parameters, runs: int, seed: int, progress: Progress, share: tuple[float, float] = (0.0, 1.0)
) -> Iterator[tuple[int, Stream, np.random.Generator]]:
    """(run, its stream, its generator) of every run; `share` is the part of the experiment's work that these runs are."""
    probabilities = zipf_probabilities(int(parameters["items"]), alpha)
    for run in range(runs):
        rng = np.random.default_rng([seed, round(1000 * alpha), run])
        yield run, draw_stream(probabilities, parameters, rng), rng
        progress(share[0] + (share[1] - share[0]) * (run + 1) / runs)
