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
    are merged every `aggregate_every` batches.
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
