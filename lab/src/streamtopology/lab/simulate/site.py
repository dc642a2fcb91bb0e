"""One operator as it would run, and the rows that it gets in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamtopology.topology import Rebalance

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Instances = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Site:
    """One operator as it would run. `cpu`: cores of each slot; instance i lives on slot i mod their number.

    `combinable`: partial states of a key may be merged, so a policy may split keys although the operator has state; the parts
    are merged every `aggregate_every` batches. `fixed_seconds`: of an instance's part in a stage,
    without its rows, on one core. `most_part_seconds`: a part costs as much to merge as a row to process, on one
    core, but no more than this: a row's own work is not done again.
    """

    operator: str
    parallelism: int
    cpu: tuple[float, ...]
    policy: str
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    has_key: bool = True
    stateful: bool = True
    combinable: bool = False
    rebalance: Rebalance = field(default_factory=Rebalance)
    aggregate_every: int = 1
    fixed_seconds: float = 0.0
    most_part_seconds: float = 10e-6

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """int64[parallelism]: the slot of each instance."""
        return np.arange(self.parallelism) % len(self.cpu)

    @property
    def used_cpu(self) -> Floats:
        """float64[u]: cores of the slots that have an instance."""
        return np.array(self.cpu[: self.parallelism])

    @property
    def capacities(self) -> Floats:
        """float64[parallelism]: cores of each instance; those on one slot share them."""
        sharing = np.bincount(self.slots, minlength=len(self.cpu))[self.slots]
        return np.array(self.cpu)[self.slots] / sharing

    def stage_seconds(self, work: Floats, runs: npt.NDArray[np.bool_] | None = None) -> float:
        """Seconds until the slowest slot is done with a stage; `work` float64[parallelism]: seconds of rows on one core.

        `runs` bool[parallelism]: the instances that take part in it and have fixed seconds, all if left out.
        """
        busy = work + self.fixed_seconds * (np.ones(self.parallelism) if runs is None else runs)
        return float((np.bincount(self.slots, busy) / self.used_cpu).max())


@dataclass(frozen=True, eq=False)
class Batch:
    """The rows of one batch: hashes uint64[n] and seconds float64[n] that each takes on one core.

    Then the same by distinct key: keys uint64[m], key_of int64[n], rows int64[m], work float64[m] in seconds.
    """

    hashes: Hashes
    seconds: Floats
    keys: Hashes
    key_of: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    work: Floats

    @staticmethod
    def of(hashes: Hashes, seconds: Floats | float) -> Batch:
        """`seconds`: one for each row, or the same for all."""
        each = np.broadcast_to(np.asarray(seconds, np.float64), len(hashes))
        keys, key_of, rows = np.unique(hashes, return_inverse=True, return_counts=True)
        return Batch(hashes, each, keys, key_of, rows, np.bincount(key_of, each, len(keys)).astype(np.float64))

    @property
    def times_keys(self) -> bool:
        """True if rows differ in cost, so that instances would time them."""
        return bool(np.ptp(self.seconds) > 0)
